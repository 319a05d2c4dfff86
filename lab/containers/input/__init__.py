"""What users give about containers: scenario sections, workloads, recordings and deployments."""
