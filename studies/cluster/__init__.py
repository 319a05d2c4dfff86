"""The page of the cluster pillar: docs/results/cluster.md."""
