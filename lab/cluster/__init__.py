"""The cluster pillar: queues of training jobs on servers with GPUs, on the twin."""
