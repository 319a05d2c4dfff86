"""The page docs/results/fidelity-fabric.md: failover on a real fabric beside the twin."""
