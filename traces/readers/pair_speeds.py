"""Read tables of the speeds of two training jobs on the same GPUs, by GPU type and number of GPUs.

For: Gavel's scheduler/*_throughputs.json in long form (stanford-futuredata/gavel, MIT; Narayanan et al., OSDI
2020): columns gpu, placement, model_a, batch_a, num_gpus_a, the same three for b, thr_a_steps_per_s and
thr_b_steps_per_s. The table is not shipped. Not for: speeds of a job alone (throughputs).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.readers import table
from traces.readers.throughputs import Throughputs
from traces.schema import Floats
from twinbed import TraceError

_BATCHES = ("batch_a", "batch_b")
_NUMBERS = ("num_gpus_a", "num_gpus_b", "thr_a_steps_per_s", "thr_b_steps_per_s")


def read(path: Path, alone: Throughputs) -> dict[int, Floats]:
    """Return number of GPUs → float64[a, b, j]: share of its own speed that a job of model a keeps beside a
    job of model b on type j. It is 0 if they cannot share, or were not measured. Gangs are on as few servers
    as possible.

    alone: models, types and speeds of jobs alone. Rows of other models or types are left out. Raises
    TraceError if none is left, or for a speed below 0.
    """
    texts = ("gpu", "placement", "model_a", "model_b")
    rows = table.read_known(path, (*texts, *_BATCHES, *_NUMBERS), _NUMBERS, **dict.fromkeys(texts, "str"))
    for name in _NUMBERS[-2:]:
        table.refuse(path, rows[name].astype(str), (rows[name] < 0).to_numpy(), "a speed of at least 0")
    rows = rows[(rows["placement"] == "consolidated") & (rows["num_gpus_a"] == rows["num_gpus_b"])]
    rows = rows[rows["gpu"].isin(alone.types)]
    left, right = (
        rows[f"model_{x}"] + [f" batch {size:g}" if size > 0 else "" for size in rows[f"batch_{x}"]]
        for x in "ab"
    )
    both = left.isin(alone.models) & right.isin(alone.models)
    if not both.any():
        raise TraceError(f"{path}: no pair of models that are in the table of speeds alone")
    rows, left, right = rows[both], left[both], right[both]
    size = len(alone.models)
    result: dict[int, Floats] = {}
    for gpus, speeds in alone.steps_per_s.items():
        mine = (rows["num_gpus_a"] == gpus).to_numpy()
        a, b = ([alone.models.index(name) for name in names[mine]] for names in (left, right))
        kind = [alone.types.index(name) for name in rows["gpu"][mine]]
        kept = np.zeros((size, size, len(alone.types)))
        for first, second, column in ((a, b, "thr_a_steps_per_s"), (b, a, "thr_b_steps_per_s")):
            own = speeds[first, kind, 0]
            pair = rows[column].to_numpy()[mine]
            kept[first, second, kind] = np.where(own > 0, pair / np.where(own > 0, own, 1.0), 0.0)
        result[gpus] = kept
    return result
