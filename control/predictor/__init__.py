"""What a training job takes on a cloud configuration: features, networks, baselines. No clock, no I/O."""
