"""Read a table of training speeds by GPU type, number of GPUs and placement, as measured by Gavel's authors.

For: the CSV with gpu, placement, model, batch_size, num_gpus and throughput_steps_per_s that was made of
Gavel's scheduler/*_throughputs.json (stanford-futuredata/gavel, MIT; Narayanan et al., OSDI 2020). The table
is not shipped. Not for: drawing jobs from it (lab.cluster.run.jobs).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from traces.readers import table
from traces.schema import Floats
from twinbed import TraceError

_COLUMNS = ("gpu", "placement", "model", "batch_size", "num_gpus", "throughput_steps_per_s")


@dataclass(frozen=True, slots=True)
class Throughputs:
    """m models on r GPU types.

    types: names of the types. models: `NAME batch N` for each model.
    steps_per_s: number of GPUs → float64[m, r, 2], steps/s by model, type and (together, spread); 0: unknown.
    """

    types: tuple[str, ...]
    models: tuple[str, ...]
    steps_per_s: dict[int, Floats]


def read(path: Path, source: str | None = None) -> Throughputs:
    """Return the table. A speed of spread GPUs that is missing or 0 is that of the same GPUs together.

    source: source whose rows are taken, if the table has a column `source` with several sources.
    """
    texts = ["gpu", "placement", "model", *(["source"] if "source" in table.header(path) else [])]
    columns = dict.fromkeys((*_COLUMNS, *texts))
    rows = table.read_known(path, list(columns), ("num_gpus", _COLUMNS[-1]), **dict.fromkeys(texts, "str"))
    if "source" in rows:
        sources = set(rows["source"])
        if source is None and len(sources) > 1:
            raise TraceError(f"{path}: rows of {', '.join(sorted(sources))}; say which source to take")
        if source is not None:
            table.one_of(path, "source", source, sources)
            rows = rows[rows["source"] == source]
    wrong = ~rows["placement"].isin(("consolidated", "unconsolidated")).to_numpy()
    table.refuse(path, rows["placement"], wrong, "consolidated or unconsolidated")
    gpus = rows["num_gpus"]
    table.refuse(path, gpus.astype("str"), ((gpus < 1) | (gpus % 1 != 0)).to_numpy(), "a whole number")
    speeds = rows[_COLUMNS[-1]]
    table.refuse(path, speeds.astype("str"), (speeds < 0).to_numpy(), "a speed of at least 0")
    batch = [f" batch {size:g}" if size > 0 else "" for size in rows["batch_size"]]
    names = rows["model"] + batch
    types, models = tuple(sorted(set(rows["gpu"]))), tuple(sorted(set(names)))
    result: dict[int, Floats] = {}
    for count, group in rows.groupby(gpus.astype(int)):
        measured = np.full((len(models), len(types), 2), np.nan)
        model = [models.index(name) for name in names[group.index]]
        kind = [types.index(name) for name in group["gpu"]]
        spread = (group["placement"] == "unconsolidated").astype(int).to_numpy()
        measured[model, kind, spread] = group[_COLUMNS[-1]]
        together = np.nan_to_num(measured[:, :, 0])
        apart = np.where(measured[:, :, 1] > 0, measured[:, :, 1], together)
        result[int(str(count))] = np.stack((together, apart), axis=2)
    return Throughputs(types, models, result)
