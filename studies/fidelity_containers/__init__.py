"""The page docs/results/fidelity-containers.md: the container twin beside the testbed."""
