"""Jobs, catalogues, training and recommending: files, runs and reports of the cloud pillar."""
