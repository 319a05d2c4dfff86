"""Judged cells without a testbed: runs made by hand, some of them as if a testbed had made them."""

from pathlib import Path
from typing import Any

from lab.ask.calibration import Calibration
from lab.ask.scenario import build, expand
from lab.containers.calibrate.probe import Look, Probe
from lab.containers.validate.both import Cell, cell
from lab.runs.store import Run, RunStore
from tests.lab.sample_runs import publish

REPEATS = 3
MANIFEST: dict[str, Any] = {
    "machine": {"cpus": "2", "cpu_model": "CPU", "kernel": "Linux 6", "cgroup_version": "1"},
    "telemetry": "polling",
    "others_cores": 0.1,
    "loop": {"own_cores": 0.05},
    "stolen_cores": 0.0,
    "probe": {"fits": True, "says": "Calibration 'default' fits this machine."},
}


def fitting(calibration: Calibration) -> Probe:
    """Return the probe of a machine that fits the calibration exactly, without measuring."""
    look = Look(calibration.kernel, 1e6, calibration.values["quota_write_delay_s"].value)
    return Probe(calibration.name, look, look)


def as_testbed(run: Run, repeat: int) -> Run:
    """The run as if it had been made here."""
    return Run(run.path, {**run.manifest, "backend": "testbed", "repeat": repeat, "testbed": MANIFEST})


def sample_cell(
    root: Path, policy: str = "escra", *, twin: dict[str, float], testbed: dict[str, float], vary: str = ""
) -> Cell:
    """A cell of a validation of HipsterShop whose runs have these metrics; repeats are all alike."""
    name = "validation-hipster-shop"
    arrivals = [{"kind": vary or "fixed", "scale": 0.5}]
    raw = {
        "name": name,
        "services": {"app": "hipster_shop", "arrivals": "fixed"},
        "vary": {"services.arrivals": arrivals},
        "policies": [policy],
    }
    spec = expand(build(raw))[0]
    ours = publish(RunStore(root / "twin"), policy, name=name, metrics=twin, statuses=("ok",))
    real = publish(RunStore(root / "real"), policy, name=name, metrics=testbed, statuses=("ok",))
    return cell(spec, [ours], [as_testbed(real, repeat) for repeat in range(REPEATS)])
