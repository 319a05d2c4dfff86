"""Public measurements of jobs on cloud configurations, as tables that searches are played on.

For: Scout, CherryPick, Lynceus, TrimTuner and C3O in the folder of public data sets. Not for: playing
(searches.py). Sizes and prices that a table lacks come from the EC2 list of 2017-11-12 in the same folder. A
run that timed out, crashed or missed its accuracy is not ok.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from control.jobs import Candidates, History
from twinbed import TraceError

GOAL_ACCURACY = 0.85
"""The accuracy that Lynceus's and TrimTuner's trainings must reach; a run below it failed."""

_LEAST_IMAGES = 6000
"""Number of images in TrimTuner's smallest sample that is used; the smaller one never reaches the goal."""

_SETTINGS = ("learning_rate", "synchronous")


@dataclass(frozen=True, slots=True)
class Table:
    """Jobs × configurations.

    name: name of the table.
    history: times and costs of the runs.
    program: for each job of the history its program; several jobs run the same program on different data.
    """

    name: str
    history: History
    program: tuple[str, ...]


def scout(folder: Path) -> Table:
    """Return 12 Hadoop and Spark workloads × 69 clusters."""
    rows = _csv(folder / "scout_multinode" / "scout_osr_multiple_nodes.csv")
    rows = rows.assign(
        job=rows.workload + "/" + rows.framework + "/" + rows.datasize,
        program=rows.workload,
        instance=rows.instance_type,
        workers=rows.num_nodes,
        node_usd_h=rows.usd_hour_per_node_2017_us_east_1,
        time_s=rows.elapsed_time_s,
        ok=rows.completed,
    )
    return _table("scout", _with_machines(rows, folder), ())


def cherrypick(folder: Path) -> Table:
    """Return the published workloads × up to 76 clusters; not every workload ran on every cluster."""
    rows = _csv(folder / "cherrypick" / "cherrypick_5workloads.csv")
    rows = rows.assign(
        job=rows.exp_name,
        program=rows.exp_name,
        instance=rows.vm_name,
        workers=rows.num_machines,
        node_usd_h=rows.vm_usd_hour,
        vcpus=rows.cpu_count.astype(float),
        memory_gib=rows.ram_gib,
        ok=True,
        disks=rows.disk_count.astype(float),
    )
    return _table("cherrypick", rows, ())


def lynceus(folder: Path) -> Table:
    """Return the published networks × 384 clusters with hyper-parameters."""
    rows = _csv(folder / "lynceus_tf_ps" / "lynceus_tf_3nn.csv")
    return _table("lynceus", _training(rows, folder, rows.network), _SETTINGS)


def trimtuner(folder: Path) -> Table:
    """Return one network on samples of four sizes × 288 clusters with hyper-parameters."""
    rows = _csv(folder / "trimtuner_tf_ps" / "trimtuner_tf.csv.gz")
    rows = rows[rows.training_set_size >= _LEAST_IMAGES]
    job = rows.network + "/" + rows.training_set_size.astype(str)
    return _table("trimtuner", _training(rows, folder, job), _SETTINGS)


def c3o(folder: Path) -> Table:
    """Return three Spark programs with their parameters, 80 jobs in all; the median of repeats."""
    parts = []
    for program in ("pagerank", "sgd", "sort"):
        rows = _csv(folder / "c3o_spark" / f"c3o_{program}.csv")
        fixed = ("job", "instance_count", "machine_type", "slots", "memory_mb_per_node", "gross_runtime_s")
        settings = [name for name in rows.columns if name not in fixed]
        part = rows.rename(
            columns={"machine_type": "instance", "instance_count": "workers", "gross_runtime_s": "time_s"}
        )
        job = program + "/" + rows[settings].astype(str).agg(",".join, axis=1)
        parts.append(part.assign(job=job, program=program))
    keys = ["job", "program", "instance", "workers"]
    both = pd.concat(parts).groupby(keys, as_index=False).time_s.median()
    return _table("c3o", _with_machines(both.assign(ok=True), folder), ())


TABLES: dict[str, Callable[[Path], Table]] = {
    "scout": scout,
    "cherrypick": cherrypick,
    "lynceus": lynceus,
    "trimtuner": trimtuner,
    "c3o": c3o,
}


def _csv(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error


def _training(rows: pd.DataFrame, folder: Path, job: pd.Series) -> pd.DataFrame:
    rows = rows.assign(
        job=job,
        program=rows.network,
        instance=rows.vm_flavor,
        workers=rows.n_workers,
        time_s=rows.training_time,
        ok=rows.acc >= GOAL_ACCURACY,
        batch=rows.batch_size.astype(float),
        synchronous=(rows.synchronism == "sync").astype(float),
    )
    return _with_machines(rows, folder)


def _with_machines(rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Add vCPUs, memory, and the list price if the rows have none."""
    listed = _csv(folder / "prices_aws_2017" / "aws_ec2_linux_on_demand_2017-11-12.csv")
    listed = listed[listed.region == "us-east-1"].drop_duplicates("instance_type").set_index("instance_type")
    unknown = sorted(set(rows.instance) - set(listed.index))
    if unknown:
        raise TraceError(f"{folder}: the EC2 list of 2017 has no {', '.join(unknown)}")
    rows = rows.assign(
        vcpus=rows.instance.map(listed.vcpu).astype(float),
        memory_gib=rows.instance.map(listed.memory_gib).astype(float),
    )
    if "node_usd_h" in rows:
        return rows
    return rows.assign(node_usd_h=rows.instance.map(listed.usd_hour_linux_on_demand))


def _table(name: str, rows: pd.DataFrame, settings: Sequence[str]) -> Table:
    if "batch" not in rows:
        rows = rows.assign(batch=np.nan)
    extra = [column for column in (*settings, "disks") if column in rows]
    keys = ["instance", "workers", "batch", *extra]
    rows = rows.assign(configuration=rows.groupby(keys, dropna=False, sort=True).ngroup())
    first = rows.drop_duplicates("configuration").sort_values("configuration")
    jobs = list(rows.drop_duplicates("job").sort_values("job").job)
    n, zeros = len(first), np.zeros(len(first))

    def real(values: pd.Series) -> np.ndarray:
        return values.to_numpy(dtype=np.float64)

    candidates = Candidates(
        name=first.instance.to_numpy(dtype=np.str_),
        count=first.workers.to_numpy(dtype=np.int64),
        batch=real(first.batch),
        price_usd_h=real(first.node_usd_h * first.workers),
        vcpus=real(first.vcpus),
        memory_gib=real(first.memory_gib),
        gpus=zeros,
        network_bps=np.full(n, np.nan),
        cpu_speed=np.full(n, np.nan),
        disk_gib=np.full(n, np.nan),
        servers=zeros.astype(np.int64),
        server=np.full(n, "", dtype=np.str_),
        parameters={column: real(first[column]) for column in settings},
    )
    time_s, ok = np.full((len(jobs), n), np.nan), np.zeros((len(jobs), n), dtype=np.bool_)
    place = rows.job.map({job: row for row, job in enumerate(jobs)}).to_numpy()
    time_s[place, rows.configuration] = real(rows.time_s)
    ok[place, rows.configuration] = rows.ok.to_numpy(dtype=np.bool_)
    program = rows.drop_duplicates("job").set_index("job").program
    history = History(tuple(jobs), candidates, time_s, time_s / 3600 * candidates.price_usd_h, ok)
    return Table(name, history, tuple(str(program[job]) for job in jobs))
