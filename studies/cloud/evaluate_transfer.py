"""How well a step's time on another accelerator is told from a profile on one, on public measurements.

For: the error of twin/cloud/transfer.across on measured batch latencies, each model left out in turn with all
its batch and image sizes. Not for: the model, nor for reading tables. Known of a row: its time on the anchor,
the anchor's profile by operation, its batch and image size; asked: its time on the target.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.readers.training import Profiled
from twin.cloud.transfer import Profiles, across

Errors = dict[str, NDArray[np.float64]]


def pairs(table: Profiled) -> list[tuple[str, str]]:
    """Every (anchor, target) of which the anchor was profiled."""
    anchors = [name for name in table.accelerators if name in table.operation_s]
    return [(anchor, target) for anchor in anchors for target in table.accelerators if target != anchor]


def leave_one_out(table: Profiled, anchor: str, target: str, seed: int = 0) -> Errors:
    """|predicted / measured − 1| of every row by model, that model left out."""
    columns = {name: table.step_s[:, at] for at, name in enumerate(table.accelerators)}
    there = np.isfinite(columns[anchor]) & np.isfinite(columns[target])
    there &= np.isfinite(table.operation_s[anchor]).all(axis=1)
    features = np.column_stack([np.log(table.batch), np.log(table.image_px)])
    everything = Profiles(columns[anchor], table.operation_s[anchor], table.idle_s[anchor], features)
    found: Errors = {}
    for name in sorted(set(table.job[there])):
        others, mine = there & (table.job != name), there & (table.job == name)
        told = across(
            everything.take(others), table.job[others], columns[target][others], everything.take(mine), seed
        )
        found[str(name)] = np.abs(told / columns[target][mine] - 1)
    return found
