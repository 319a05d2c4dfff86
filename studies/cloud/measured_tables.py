"""Public measurements of jobs on cloud configurations, as tables that searches are played on.

For: Scout, CherryPick, Lynceus, TrimTuner and C3O as they lie in ../shared/data (its README has source and
licence of each). Not for: playing (trials.py). What a table does not say of a machine comes from the EC2 list
of 2017-11-12 that lies beside them. A run that timed out, crashed or missed its accuracy is not ok.
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
"""What Lynceus's and TrimTuner's trainings are for; a run below it failed."""
_LEAST_IMAGES = 6000
"""TrimTuner's smallest sample never reaches the goal."""


@dataclass(frozen=True, slots=True)
class Table:
    """Jobs × configurations with what a job is a variant of: the same program on other data.

    program: one per job of the history.
    """

    name: str
    history: History
    program: tuple[str, ...]


def scout(folder: Path) -> Table:
    """12 Hadoop and Spark workloads × 69 clusters."""
    rows = _csv(folder / "scout_multinode" / "scout_osr_multiple_nodes.csv")
    rows = rows.assign(
        job=rows.workload + "/" + rows.framework + "/" + rows.datasize,
        program=rows.workload,
        instance=rows.instance_type,
        workers=rows.num_nodes,
        each_usd_h=rows.usd_hour_per_node_2017_us_east_1,
        time_s=rows.elapsed_time_s,
        ok=rows.completed,
    )
    return _table("scout", _with_machines(rows, folder), ())


def cherrypick(folder: Path) -> Table:
    """The workloads that are there × up to 76 clusters; not all of them on each."""
    rows = _csv(folder / "cherrypick" / "cherrypick_5workloads.csv")
    rows = rows.assign(
        job=rows.exp_name,
        program=rows.exp_name,
        instance=rows.vm_name,
        workers=rows.num_machines,
        each_usd_h=rows.vm_usd_hour,
        vcpus=rows.cpu_count.astype(float),
        memory_gib=rows.ram_gib,
        ok=True,
        disks=rows.disk_count.astype(float),
    )
    return _table("cherrypick", rows, ())


def lynceus(folder: Path) -> Table:
    """The networks that are there × 384 clusters with hyper-parameters."""
    rows = _csv(folder / "lynceus_tf_ps" / "lynceus_tf_3nn.csv")
    return _table("lynceus", _training(rows, folder, rows.network), _SETTINGS)


def trimtuner(folder: Path) -> Table:
    """One network on samples of four sizes × 288 clusters with hyper-parameters."""
    rows = _csv(folder / "trimtuner_tf_ps" / "trimtuner_tf.csv.gz")
    rows = rows[rows.training_set_size >= _LEAST_IMAGES]
    return _table(
        "trimtuner",
        _training(rows, folder, rows.network + "/" + rows.training_set_size.astype(str)),
        _SETTINGS,
    )


def c3o(folder: Path) -> Table:
    """Three Spark programs with their parameters, 80 jobs in all; the median of repeats."""
    parts = []
    for program in ("pagerank", "sgd", "sort"):
        rows = _csv(folder / "c3o_spark" / f"c3o_{program}.csv")
        fixed = ("job", "instance_count", "machine_type", "slots", "memory_mb_per_node", "gross_runtime_s")
        settings = [name for name in rows.columns if name not in fixed]
        job = program + "/" + rows[settings].astype(str).agg(",".join, axis=1)
        parts.append(
            pd.DataFrame(
                {
                    "job": job,
                    "program": program,
                    "instance": rows.machine_type,
                    "workers": rows.instance_count,
                    "time_s": rows.gross_runtime_s,
                }
            )
        )
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
_SETTINGS = ("learning_rate", "synchronous")


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
    """Adds vCPUs, memory, and the list price where the rows have none."""
    listed = _csv(folder / "prices_aws_2017" / "aws_ec2_linux_on_demand_2017-11-12.csv")
    listed = listed[listed.region == "us-east-1"].drop_duplicates("instance_type").set_index("instance_type")
    unknown = sorted(set(rows.instance) - set(listed.index))
    if unknown:
        raise TraceError(f"{folder}: the EC2 list of 2017 has no {', '.join(unknown)}")
    found = rows.assign(
        vcpus=rows.instance.map(listed.vcpu).astype(float),
        memory_gib=rows.instance.map(listed.memory_gib).astype(float),
    )
    if "each_usd_h" not in found:
        found = found.assign(each_usd_h=rows.instance.map(listed.usd_hour_linux_on_demand))
    return found


def _table(name: str, rows: pd.DataFrame, settings: Sequence[str]) -> Table:
    if "batch" not in rows:
        rows = rows.assign(batch=np.nan)
    extra = [each for each in (*settings, "disks") if each in rows]
    keys = ["instance", "workers", "batch", *extra]
    rows = rows.assign(configuration=rows.groupby(keys, dropna=False, sort=True).ngroup())
    first = rows.drop_duplicates("configuration").sort_values("configuration")
    jobs = list(rows.drop_duplicates("job").sort_values("job").job)
    n, nothing = len(first), np.full(len(first), np.nan)
    zeros = np.zeros(n)
    candidates = Candidates(
        name=first.instance.to_numpy(dtype=np.str_),
        count=first.workers.to_numpy(dtype=np.int64),
        batch=first.batch.to_numpy(dtype=np.float64),
        price_usd_h=(first.each_usd_h * first.workers).to_numpy(dtype=np.float64),
        vcpus=first.vcpus.to_numpy(dtype=np.float64),
        memory_gib=first.memory_gib.to_numpy(dtype=np.float64),
        gpus=zeros,
        network_bps=nothing,
        cpu_speed=nothing,
        servers=zeros.astype(np.int64),
        server=np.full(n, "", dtype=np.str_),
        parameters={each: first[each].to_numpy(dtype=np.float64) for each in settings},
    )
    time_s, ok = np.full((len(jobs), n), np.nan), np.zeros((len(jobs), n), dtype=np.bool_)
    place = rows.job.map({job: row for row, job in enumerate(jobs)}).to_numpy()
    time_s[place, rows.configuration] = rows.time_s.to_numpy(dtype=np.float64)
    ok[place, rows.configuration] = rows.ok.to_numpy(dtype=np.bool_)
    program = rows.drop_duplicates("job").set_index("job").program
    return Table(
        name,
        History(tuple(jobs), candidates, time_s, time_s / 3600 * candidates.price_usd_h, ok),
        tuple(str(program[job]) for job in jobs),
    )
