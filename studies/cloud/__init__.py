"""The page of the cloud pillar: docs/results/cloud.md."""
