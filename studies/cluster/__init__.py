"""The pages of the cluster pillar: docs/results/cluster.md and docs/results/sharing.md."""
