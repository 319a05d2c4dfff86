"""The metrics of cluster runs, from metrics.csv beside this file.

Not for: computing them (lab.cluster.run.figures).
"""

from __future__ import annotations

from lab.runs.metric import read

METRICS = read("lab.cluster")
