"""The twin's predictions of a measured training: its iterations through the same faults, and its restarts.

For: applications.py's cells beside twin.fabric. Not for: measuring, nor tables (application_rows.py). The
twin gets the fabric's calibration, the length of an undisturbed iteration, the times of the faults, and the
directions in which the job's flows met them; it never gets the effects of the faults.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from control.fabric import BfdTimers
from lab.ask.calibration import Calibration
from lab.fabric.calibrate import values as calibration
from studies.fidelity_fabric.applications import Cell
from twin.fabric import checkpoints, jobs
from twin.fabric.failover import gap_samples
from twin.fabric.jobs import Cluster, Job
from twin.fabric.model import Floats, Handling, Scheme
from twin.fabric.transports import Tcp

PARAMETERS = 268_650
"""Parameters of the network that ddp_worker.py trains."""

SETTLED_S = 2.0
"""Time after a fault, s, in which its effect on iterations is over."""

STARTS = 5
"""Number of first iterations that belong to the start and are left out."""

CARRIES_PER_S = 3_000.0
"""Rate above which an uplink carries a job's flows, bytes/s: BFD and BGP alone send less."""

_SAMPLES = 100
_KERNEL_RTO_S = 0.2


@dataclass(frozen=True, slots=True)
class Iterations:
    """The iterations of one run.

    usual_s: mean length of undisturbed iterations, s.
    mean_s: mean length of all iterations, s.
    longest_s: longest iteration within SETTLED_S of each fault that met the job, s, float64[m].
    """

    usual_s: float
    mean_s: float
    longest_s: Floats

    @property
    def inflation(self) -> float:
        """Mean of all iterations over the usual one; 1: the faults cost nothing."""
        return self.mean_s / self.usual_s


def met(cell: Cell) -> list[dict[str, float]]:
    """Return the faults of paths with the job's flows, without those too close to the job's end."""
    end_s = float(np.sum(cell["iteration_s"]))
    return [fault for fault in cell["faults"] if any(_hit(fault)) and fault["at_s"] + SETTLED_S < end_s]


def measured(cell: Cell) -> Iterations:
    """Return the iterations of the testbed's run."""
    duration_s = np.array(cell["iteration_s"])
    end_s = np.cumsum(duration_s)
    quiet = np.ones(len(duration_s), np.bool_)
    for fault in cell["faults"]:
        quiet &= (end_s < fault["at_s"]) | (end_s - duration_s > fault["at_s"] + SETTLED_S)
    quiet[:STARTS] = False
    return Iterations(
        float(duration_s[quiet].mean()), float(duration_s.mean()), _longest(duration_s, met(cell))
    )


def predicted(cell: Cell, calibrated: Calibration | None = None) -> Iterations:
    """Return the twin's iterations: means over many of its runs, and longest_s of all of them.

    calibrated: the fabric's calibration (None: the one that ships).
    """
    asked = cell["asked"]
    known = calibrated or calibration.load_calibration()
    fabric = calibration.fabric(known, {}, fast_path=asked["fast_path"])
    timers = BfdTimers(**asked["bfd"])
    usual_s = measured(cell).usual_s
    cluster = Cluster(1, fabric.software_rate_bps, fabric.alpha_s, fabric.software_rate_bps, fabric.alpha_s)
    job = _job(usual_s, asked["hosts"], cluster)
    faults = met(cell)
    transport = Tcp(rto_min_s=asked["rto_min_s"] or _KERNEL_RTO_S)
    mean_s, longest_s = [], []
    for sequence in np.random.SeedSequence(0).spawn(_SAMPLES):
        gaps, walk = sequence.spawn(2)
        lost_s = gap_samples(
            Handling(Scheme.THORN_SOFTWARE, fabric.control, timers),
            True,
            max(len(faults), 1),
            gaps,
            down_s=asked["down_s"],
        )
        begin_s = np.array([fault["at_s"] for fault in faults])
        worst_s = np.array([gap_s[_hit(fault)].max() for fault, gap_s in zip(faults, lost_s, strict=False)])
        run = jobs.series(
            job,
            cluster,
            iterations=len(cell["iteration_s"]),
            outages=np.column_stack([begin_s, begin_s + worst_s]) if faults else jobs.NO_SPANS,
            transport=transport,
            seed=walk,
            jitter_cv=_spread(cell),
        )
        mean_s.append(float(run.duration_s.mean()))
        longest_s.append(_longest(run.duration_s, faults))
    return Iterations(usual_s, float(np.mean(mean_s)), np.concatenate(longest_s))


@dataclass(frozen=True, slots=True)
class Restarts:
    """A job that died and started again.

    job_s: time from the start of the first iteration to the end of the last, s.
    lost_s: the part of it that was not progress, s.
    deaths: number of deaths.
    """

    job_s: float
    lost_s: float
    deaths: int


def restarts_measured(cell: Cell) -> Restarts:
    """Return the restarts that the testbed's supervisor saw."""
    lost = cell["lost_s"]
    return Restarts(cell["job_s"], float(sum(map(np.sum, lost.values()))), len(lost["detect_s"]))


def restarts_predicted(cell: Cell, calibrated: Calibration | None = None) -> Restarts:
    """Walk the same work through the same faults in the twin.

    The twin gets the times of iterations, saves and the first start, gloo's timeout, and the calibration's
    time until a mended link is used again. calibrated: as for `predicted`.
    """
    asked = cell["asked"]
    fabric = calibration.fabric(calibrated or calibration.load_calibration(), {})
    save_s = float(np.mean(cell["save_s"]))
    work_s = float(np.sum(cell["quiet_s"])) - save_s * len(cell["save_s"])
    saving = checkpoints.Checkpointing(
        interval_s=work_s / len(cell["quiet_s"]) * asked["save_every"],
        save_s=save_s,
        detect_s=asked["timeout_s"],
        init_s=cell["start_s"],
    )
    at_s = np.array([fault["at_s"] for fault in cell["faults"]])
    back_s = np.array([fault["cleared_s"] for fault in cell["faults"]]) + fabric.control.session_up_s.median_s
    lives = checkpoints.run(saving, work_s, at_s, back_s, until_s=float(10 * work_s + 1e4))
    saves_s = float(lives.saves.sum()) * save_s
    deaths = len(lives.begin_s) - lives.finished
    return Restarts(lives.end_of_job_s, lives.end_of_job_s - work_s - saves_s, deaths)


def _hit(fault: dict[str, float]) -> list[bool]:
    return [fault["out_per_s"] > CARRIES_PER_S, fault["in_per_s"] > CARRIES_PER_S]


def _spread(cell: Cell) -> float:
    """Return the coefficient of variation of the lognormal through the iterations' 16th and 84th percentiles.

    The usual scatter of an iteration does not include a machine's rare stalls.
    """
    low, high = np.log(np.percentile(np.array(cell["quiet_s"])[STARTS:], (15.87, 84.13)))
    return float(np.sqrt(np.expm1(((high - low) / 2) ** 2)))


def _longest(duration_s: Floats, faults: list[dict[str, float]]) -> Floats:
    """Return the longest iteration that ends within SETTLED_S after each fault, or that then still runs.

    The result is float64[m]. Faults after the end are left out.
    """
    end_s = np.cumsum(duration_s)
    at_s = [fault["at_s"] for fault in faults if fault["at_s"] < end_s[-1]]
    spans = zip(np.searchsorted(end_s, at_s), np.searchsorted(end_s, np.add(at_s, SETTLED_S)), strict=True)
    return np.array([duration_s[first : last + 1].max() for first, last in spans])


def _job(usual_s: float, hosts: int, cluster: Cluster) -> Job:
    """Return a data-parallel job whose iteration lasts usual_s without faults."""
    whole = Job(
        PARAMETERS, layers=1, micro_batches=1, micro_batch_s=usual_s, activation_bytes=0.0, data=hosts
    )
    beyond_s = jobs.iteration_s(whole, cluster) - usual_s
    return replace(whole, micro_batch_s=usual_s - beyond_s)
