"""The metrics of runs on a market, from metrics.csv beside this file.

Not for: computing them (lab.cloud.run.runner).
"""

from __future__ import annotations

from lab.runs.metric import read

METRICS = read("lab.cloud")
