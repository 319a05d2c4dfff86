"""Tables of applications through real faults: the testbed's figures beside the twin's.

For: docs/results/fidelity-fabric.md. Not for: measuring (applications.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from lab.ask.calibration import Calibration
from lab.fabric.real.settings import Road
from lab.runs.formats import Column, Record, Result, markdown
from studies.fidelity_fabric import application_twin as twin
from studies.fidelity_fabric.applications import RESTART, THROUGH, Cell, load

TARGET = 0.10
"""Largest relative error of a training's inflation that the twin aims at."""

_SHARES = (50, 90, 95, 99, 99.9, 100)
_WEB = {"kept": "HTTP, connections kept", "new": "HTTP, a new connection each time"}
_MILLI = 1e3


def rows(
    store: Path | None = None, calibrations: Mapping[Road, Calibration] | None = None
) -> dict[str, Result]:
    """Return the tables of the cells in the store (None: this code's), by name.

    Names: training, iterations, restart, others, packets. calibrations: calibration of the twin by the
    fabric's road; a road without one uses the calibration that ships.
    """
    cells = load(store)
    known = calibrations or {}
    trainings = [_Beside(cells[name], known) for name in THROUGH if name in cells]
    dying = [cells[name] for name in RESTART if name in cells]
    tables = {
        "training": _training(trainings),
        "iterations": _iterations(trainings),
        "restart": _restart(dying, trainings, known.get(Road.REAL_TIME)),
        "others": Result(_OTHERS, tuple(_others(cells))),
        "packets": _packets(cells),
    }
    return {name: result for name, result in tables.items() if result.rows}


_HEADINGS = {
    "training": "PyTorch DDP over gloo through silent faults of one port after the other",
    "iterations": "How long its iterations are",
    "restart": "The same job on one path, with checkpoints and restarts",
    "others": "iperf3 and HTTP through the same faults",
    "packets": "Packets on the wire",
}


def section(store: Path | None = None, calibrations: Mapping[Road, Calibration] | None = None) -> list[str]:
    """Return the page's paragraphs about applications; none where nothing was measured."""
    tables = rows(store, calibrations)
    parts = ["## Applications, unmodified"] if tables else []
    for name, result in tables.items():
        parts += [f"### {_HEADINGS[name]}", markdown(result).rstrip()]
    return parts


_TRAINING = (
    Column("setting", "Setting"),
    Column("iterations", "Iterations"),
    Column("faults", "Faults"),
    Column("met", "Met the job"),
    Column("stalls", "Stalls of the machine"),
    Column("usual_ms", "Iteration", "ms", 1),
    Column("longest_ms", "Longest per fault, median", "ms", 0),
    Column("twin_longest_ms", "Twin", "ms", 0),
    Column("most_ms", "Largest", "ms", 0),
    Column("inflation", "Inflation", "1", 4),
    Column("twin_inflation", "Twin's", "1", 4),
    Column("error", "Error", decimals=1, percent=True),
    Column("same", "As without faults"),
)


class _Beside:
    """A training on the testbed, and the twin's prediction of it."""

    def __init__(self, cell: Cell, calibrations: Mapping[Road, Calibration]) -> None:
        road = Road.FAST if cell["asked"]["fast_path"] else Road.REAL_TIME
        self.cell, self.asked = cell, cell["asked"]
        self.real, self.twin = twin.measured(cell), twin.predicted(cell, calibrations.get(road))
        self.same = "yes" if cell["same_loss"] and cell["same_model"] else "no"


def _training(trainings: Sequence[_Beside]) -> Result:
    rows = [_training_row(training) for training in trainings]
    good = sum(abs(float(row["error"] or 0)) <= TARGET for row in rows)
    return Result(
        _TRAINING,
        tuple(rows),
        legend="Inflation: the mean of all iterations over the mean of undisturbed iterations. Longest: "
        f"the longest iteration within {twin.SETTLED_S:g} s of a fault on a path that the job's flows took.",
        notes=(
            f"Settings within {TARGET:.0%}: {good} of {len(rows)}.",
            "As without faults: every loss of every rank is equal to the bit, and all replicas are the same "
            "at the end.",
        ),
    )


def _training_row(training: _Beside) -> Record:
    cell, real, said = training.cell, training.real, training.twin
    return {
        "setting": cell["asked"]["title"],
        "iterations": len(cell["iteration_s"]),
        "faults": len(cell["faults"]),
        "met": len(real.longest_s),
        "stalls": len(cell["stalls"]),
        "usual_ms": real.usual_s * _MILLI,
        "longest_ms": float(np.median(real.longest_s)) * _MILLI if len(real.longest_s) else None,
        "twin_longest_ms": float(np.median(said.longest_s)) * _MILLI if len(said.longest_s) else None,
        "most_ms": float(real.longest_s.max()) * _MILLI if len(real.longest_s) else None,
        "inflation": real.inflation,
        "twin_inflation": said.inflation,
        "error": said.inflation / real.inflation - 1.0,
        "same": training.same,
    }


_ITERATIONS = (
    Column("setting", "Setting"),
    Column("faults", "Faults"),
    *(Column(f"p{share:g}", "max" if share == 100 else f"p{share:g}", "ms", 0) for share in _SHARES),
)


def _iterations(trainings: Sequence[_Beside]) -> Result:
    return Result(_ITERATIONS, tuple(row for training in trainings for row in _distributions(training.cell)))


def _distributions(cell: Cell) -> Iterator[Record]:
    for key, with_faults in (("quiet_s", "without"), ("iteration_s", "with")):
        values = np.percentile(np.array(cell[key])[twin.STARTS :], _SHARES) * _MILLI
        figures = {f"p{share:g}": float(value) for share, value in zip(_SHARES, values, strict=True)}
        yield {"setting": cell["asked"]["title"], "faults": with_faults, **figures}


_RESTART = (
    Column("setting", "Setting"),
    Column("deaths", "Deaths"),
    Column("detect_s", "Detected after", "s", 1),
    Column("path_s", "Path back after", "s", 1),
    Column("start_s", "Started after", "s", 1),
    Column("redo_s", "Done again", "s", 1),
    Column("lost_share", "Time lost", decimals=1, percent=True),
    Column("twin_lost_share", "Twin", decimals=1, percent=True),
    Column("job_error", "Twin's error of the job's time", decimals=1, percent=True),
    Column("same", "As without faults"),
)


def _restart(dying: Sequence[Cell], trainings: Sequence[_Beside], calibrated: Calibration | None) -> Result:
    cycles = {cell["asked"]["down_s"] for cell in dying}
    rows = [_restart_row(cell, calibrated) for cell in dying]
    rows += [_lasting_row(training) for training in trainings if training.asked["down_s"] in cycles]
    return Result(_RESTART, tuple(rows), legend="Seconds: the mean of all deaths.")


def _restart_row(cell: Cell, calibrated: Calibration | None) -> Record:
    real, said = twin.restarts_measured(cell), twin.restarts_predicted(cell, calibrated)
    means = {key: float(np.mean(values)) if values else None for key, values in cell["lost_s"].items()}
    return {
        "setting": f"{cell['asked']['title']}, a save every {cell['asked']['save_every']} iterations",
        "deaths": real.deaths,
        **means,
        "lost_share": real.lost_s / real.job_s,
        "twin_lost_share": said.lost_s / said.job_s,
        "job_error": said.job_s / real.job_s - 1.0,
        "same": "yes" if cell["same_loss"] and cell["same_model"] else "no",
    }


def _lasting_row(training: _Beside) -> Record:
    """Return the row of the same job on hosts with two paths, which survives the faults."""
    real, said = training.real, training.twin
    return {
        "setting": f"two paths, {training.asked['title']}",
        "deaths": 0,
        "lost_share": 1.0 - 1.0 / real.inflation,
        "twin_lost_share": 1.0 - 1.0 / said.inflation,
        "job_error": said.inflation / real.inflation - 1.0,
        "same": training.same,
    }


_OTHERS = (
    Column("application", "Application"),
    Column("faults", "Faults"),
    Column("done", "Done"),
    Column("errors", "Errors"),
    Column("median", "Median"),
    Column("worst", "Worst"),
)


def _others(cells: Mapping[str, Cell]) -> Iterator[Record]:
    if "streams" in cells:
        cell = cells["streams"]
        rate_bps, stalled_s = np.array(cell["rate_bps"]), cell["longest_stall_s"]
        yield {
            "application": "iperf3, 4 streams of 50 Mbit/s",
            "faults": cell["faults"],
            "done": f"{len(rate_bps)} intervals of 0.1 s, {cell['retransmits']} retransmissions",
            "errors": int(bool(cell["error"])),
            "median": f"{np.median(rate_bps) / 1e6:.0f} Mbit/s",
            "worst": f"{rate_bps.min() / 1e6:.0f} Mbit/s; next to nothing for {stalled_s:.1f} s",
        }
    for key, title in _WEB.items() if "web" in cells else ():
        cell = cells["web"][key]
        took_s = np.array(cell["took_s"])
        yield {
            "application": title,
            "faults": cell["faults"],
            "done": f"{len(took_s)} requests",
            "errors": len(cell["errors"]),
            "median": f"{np.median(took_s) * _MILLI:.1f} ms",
            "worst": f"{took_s.max() * _MILLI:.0f} ms; {(took_s > 0.1).sum()} above 100 ms",
        }


_PACKETS = (Column("what", "What"), Column("found", "Found"))


def _packets(cells: Mapping[str, Cell]) -> Result:
    if "packets" not in cells:
        return Result(_PACKETS, ())
    cell = cells["packets"]
    values = {
        "packets at the first host's uplinks": " + ".join(map(str, cell["packets"])),
        "not as they have to be": "; ".join(cell["wrong"]) or "none",
        "payloads as sent": "all" if cell["all_payloads"] else "not all",
        "flows by uplink": " + ".join(map(str, cell["flows_by_uplink"])),
        "outer source ports, and number of flows": f"{cell['source_ports']} of {cell['flows']}",
        "outer source ports of a flow": str(cell["ports_of_a_flow"]),
        "outer TTL": ", ".join(map(str, cell["ttl"])),
        "outer packets with DF": str(cell["fragments_refused"]),
    }
    return Result(_PACKETS, tuple({"what": what, "found": value} for what, value in values.items()))
