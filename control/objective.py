"""What a ranking of clusters minimises.

For: verbs, whose options name it, and recommenders. It needs no NumPy, so that the command line starts at
once. Not for: jobs and candidates (control.jobs).
"""

from enum import StrEnum


class Objective(StrEnum):
    """The quantity that a ranking minimises. A budget or a deadline bounds the other one."""

    COST = "cost"
    TIME = "time"
