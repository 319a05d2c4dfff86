"""What users give about jobs: job files, local runs, catalogues and past measurements."""
