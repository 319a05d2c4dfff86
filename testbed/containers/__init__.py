"""Real containers: cgroups, the executor of their life, the recorder, agents, services and their load."""
