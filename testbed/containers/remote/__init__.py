"""Run containers on several hosts: a controller decides, and agents carry its decisions out."""
