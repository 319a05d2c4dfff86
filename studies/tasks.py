"""The table of all tasks of `python -m studies NAME`. For: the command line. Not for: the tasks' work."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name

from studies.experiments.catalogue import EXPERIMENTS, experiment
from studies.harness import Asked


@dataclass(frozen=True, slots=True)
class Task:
    """A row of the table.

    about: its result, in one line.
    needs: root, data or extras beside a checkout; empty: nothing.
    takes_about: its duration, in words.
    options: names of the options that it takes beside `out`.
    function: `module:name` of its function, which is imported when it is called, because torch and others
        import slowly.
    """

    about: str
    needs: str
    takes_about: str
    options: tuple[str, ...]
    function: str

    def run(self, asked: Asked) -> int:
        """Do the task, and return the exit code."""
        return int(resolve_name(self.function)(asked))


_PAGE = ("data", "minutes", "store")
TASKS = {
    "containers": Task(
        "docs/results/containers.md: E1-E8 and four questions of ours on the container twin",
        "", "30 minutes or more", _PAGE, "studies.experiments.page:make",
    ),
    "requests-only": Task(
        "docs/results/requests-only.md: Escra beside CPU requests without limits, with room and crowded",
        "", "10 minutes", ("minutes", "store"), "studies.experiments.page:make",
    ),
    "firm": Task(
        "docs/results/firm.md: Firm beside its source's figures, Escra and Autopilot; E9, E10",
        "", "20 minutes", ("minutes", "store"), "studies.experiments.page:make",
    ),
    "firm-training": Task(
        "docs/results/firm-training.md: Firm's rules on random applications; its trained numbers, too",
        "twinbed[cloud]", "30 minutes", ("minutes",), "studies.firm.page:make",
    ),
    "fabric": Task(
        "docs/results/fabric.md: T1-T5, fleets and save intervals on the fabric twin",
        "public data for its last part", "5 minutes", _PAGE, "studies.experiments.page:make",
    ),
    "failures": Task(
        "docs/results/failures.md: NCCL's own failover by fault length, and fleets beside sources",
        "", "2 minutes", ("minutes", "store"), "studies.fabric.failures:make",
    ),
    "cloud": Task(
        "docs/results/cloud.md: performance models, recommenders and predictors; C1, C2, C4, F1-F4",
        "twinbed[cloud]; public data", "15 minutes", _PAGE, "studies.cloud.page:make",
    ),
    "stalls": Task(
        "docs/results/stalls.md: what interconnect, CPU, disk and network cost the shipped jobs; K4, K5",
        "root, torch, a quiet machine", "25 minutes; continues where it stopped",
        ("minutes", "store", "only", "page_only"), "studies.cloud.stalls:make",
    ),
    "goodput": Task(
        "docs/results/goodput.md: the goodput model and Scavenger's search on measured steps; K1, K2",
        "public data", "1 minute", ("data",), "studies.cloud.goodput:make",
    ),
    "advice": Task(
        "docs/results/advice.md: advice of the first half of public histories, replayed on the second",
        "public data", "10 minutes", ("data", "minutes"), "studies.advice.page:make",
    ),
    "cluster": Task(
        "docs/results/cluster.md: schedulers beside their sources, H1-H4, H8, H9",
        "public data", "10 minutes; continues where it stopped", _PAGE, "studies.cluster.page:make",
    ),
    "sharing": Task(
        "docs/results/sharing.md: who stays in a shared, reserved cluster, on Philly and SURF; H10",
        "public data", "1 minute", ("data",), "studies.cluster.sharing:make",
    ),
    "market": Task(
        "docs/results/market.md: deadlines on spot machines beside the optimum, and spotDNN",
        "public data", "10 minutes", ("data", "minutes"), "studies.market.page:make",
    ),
    "unequal": Task(
        "measures asynchronous training on unequal machines and a revocation, for market's page",
        "root, torch", "10 minutes; continues where it stopped",
        ("minutes", "store"), "studies.market.unequal:make",
    ),
    "fidelity-containers": Task(
        "docs/results/fidelity-containers.md: the container twin beside this machine's kernel",
        "root", "about three hours",
        ("minutes", "store", "only", "repeats", "duration", "few"), "studies.fidelity_containers.page:make",
    ),
    "fidelity-cluster": Task(
        "docs/results/fidelity-cluster.md: schedulers on real training jobs and a real Slurm beside the twin",
        "root, torch, Slurm", "3 hours; continues where it stopped",
        ("minutes", "store", "only", "repeats", "page_only"), "studies.fidelity_cluster.page:make",
    ),
    "fidelity-fabric": Task(
        "docs/results/fidelity-fabric.md: failover on a real fabric beside the twin",
        "root, FRR", "3 hours; continues where it stopped",
        ("minutes", "store", "only", "page_only", "note"), "studies.fidelity_fabric.campaigns:make",
    ),
    "applications": Task(
        "measures unmodified applications through real faults, for fidelity-fabric's page",
        "root, FRR, torch", "40 minutes; continues where it stopped",
        ("minutes", "store", "only"), "studies.fidelity_fabric.applications:make",
    ),
    "control-loop": Task(
        "prints how well the control loop works on this kernel",
        "root", "1 minute", (), "studies.fidelity_containers.loop_figures:make",
    ),
    "detection": Task(
        "docs/results/detection.md: silent faults and false downs: stock FRR, fast path, our data plane",
        "root, FRR, gcc", "5 minutes", ("minutes", "only", "out"), "studies.fabric.detection:make",
    ),
    "wire": Task(
        "prints bytes on the wire and CPU of the real controller and agents, with pretended containers",
        "root", "3 minutes", (), "studies.wire.measure:make",
    ),
    "soft-roce": Task(
        "prints what silent faults cost a queue pair of soft RoCE, beside the twin (--only 3x100 5x50)",
        "root, QEMU", "5 minutes", ("only", "duration", "timeout"), "studies.fidelity_fabric.soft_roce:make",
    ),
    "soft-roce-survival": Task(
        "prints which outages a queue pair of soft RoCE survives, beside the twin (--only 4 5 8 s)",
        "root, QEMU", "5 minutes", ("only",), "studies.fidelity_fabric.soft_roce:make_survival",
    ),
    "recommenders": Task(
        "prints the recommenders' trials and regret on public measurements",
        "twinbed[cloud]; public data", "10 minutes",
        ("data", "only", "recommenders", "programs", "few", "seeds", "past", "jobs"),
        "studies.cloud.recommenders:make",
    ),
    "job-performance": Task(
        "prints the performance models' errors on public measurements, by workload",
        "twinbed[cloud]; public data", "5 minutes", ("data", "only"), "studies.cloud.performance:make",
    ),
    "prices": Task(
        "traces/catalogue/prices.parquet: the catalogue that ships, from the open price sets (--store FILE)",
        "public data", "1 minute", ("data", "store"), "studies.cloud.price_list:make",
    ),
    "measure": Task(
        "adds real runs of the shipped jobs to the table of measured jobs",
        "root, a quiet machine", "1 hour; continues where it stopped",
        ("minutes", "store", "again"), "studies.cloud.measuring:make",
    ),
    "scale": Task(
        "docs/results/scale.md: a sweep on Dask and S3 through faults, and what a unit costs",
        "twinbed[scale]; root, moto", "half an hour",
        ("repeats", "minutes", "store", "page_only"), "studies.scale.page:make",
    ),
    "training-curve": Task(
        "trains a small CNN and writes lab/fabric/run/training_curve.csv",
        "twinbed[cloud]", "2 minutes", (), "studies.fabric.training_curve:make",
    ),
}  # fmt: skip

_EXPERIMENT = ("minutes", "store", "sensitivity", "html", "form")


def task(name: str) -> tuple[str, Task]:
    """Return the task of this name, or of an experiment, with the name as the table spells it.

    Raises ScenarioError with the nearest name if there is none.
    """
    if name in TASKS:
        return name, TASKS[name]
    item = experiment(name)
    about = f"prints {item.name}: {item.title}"
    needs = "twinbed[cloud]" if item.compute else ""
    return item.name, Task(about, needs, "seconds to minutes", _EXPERIMENT, "studies.experiments.page:show")


def listing() -> str:
    """Return a line for each task and experiment."""
    rows = [(name, TASKS[name]) for name in TASKS] + [task(name) for name in EXPERIMENTS]
    return "".join(
        f"{name:22}{row.about}  [{'; '.join(filter(None, (row.needs, row.takes_about)))}]\n"
        for name, row in rows
    )
