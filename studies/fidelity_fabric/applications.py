"""Unmodified applications through real faults, measured: `python -m studies.fidelity_fabric.applications`.

For: cells of training, checkpoint and restart, streams, web and packets, each a file in a store, so that what
was interrupted goes on where it was. Not for: what the twin says of them (application_twin.py) nor tables
(application_rows.py). A cell takes its fabric up and down by itself. All times in a cell's file are seconds
after its application began to compute, or to send.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from control.fabric import BfdTimers, Fault, FaultKind
from lab.runs.files import write_whole
from testbed.fabric import faults, leftovers, sentinel, up
from testbed.fabric.apps import restart, streams, training, web, wire
from testbed.fabric.apps.cycle import Cycle, Struck, round_robin
from testbed.fabric.apps.paths import answers
from testbed.fabric.apps.training import Trained, Training
from testbed.fabric.fast_path import processes
from testbed.fabric.model import Endpoint, Fabric, Plan
from testbed.fabric.reach import Reach
from twinbed import ScenarioError, TwinbedError

ROOT = Path(__file__).resolve().parents[2]
STORES = ROOT / "build" / "fidelity" / "applications"
NAME = "apps"
"""Of the fabrics that are taken up."""

_CODE = ("testbed/fabric/apps",)
STALL_S = 0.1
"""From this length on a stall of the machine is noted: BFD bears it, an iteration shows it."""

_START_S, _LIMIT_S = 120.0, 480.0

Cell = dict[str, Any]
"""What is in a cell's file."""


@dataclass(frozen=True, slots=True)
class Through:
    """A training of `iterations` on so many hosts, once without faults and once through silent faults of one
    port after the other, down_s each, up_s and until all routes are back between them. fast_path: hosts have
    one, in both runs."""

    title: str
    hosts: int = 2
    bfd: BfdTimers = BfdTimers()  # noqa: RUF009  (frozen)
    rto_min_s: float | None = None
    fast_path: bool = False
    iterations: int = 500
    down_s: float = 3.0
    up_s: float = 1.0


@dataclass(frozen=True, slots=True)
class OnOnePath:
    """A training whose hosts have one path only, with checkpoints: it dies of a fault of the path and starts
    again. timeout_s: gloo's; save_every: iterations."""

    title: str
    iterations: int = 1500
    timeout_s: float = 5.0
    save_every: int = 50
    down_s: float = 20.0
    up_s: float = 20.0


THROUGH = {
    "training-5x50": Through("5 × 50 ms"),
    "training-3x100": Through("3 × 100 ms", bfd=BfdTimers(0.1, 3)),
    "training-rto": Through("5 × 50 ms, rto_min 10 ms", rto_min_s=0.01),
    "training-fast": Through("5 × 50 ms, fast path, rto_min 10 ms", rto_min_s=0.01, fast_path=True),
    "training-4-hosts": Through("5 × 50 ms, 4 hosts", hosts=4, iterations=400),
    "training-20-20-4-hosts": Through(
        "5 × 50 ms, fast path, 4 hosts, 20 s down and 20 s up",
        hosts=4,
        fast_path=True,
        iterations=1000,
        down_s=20.0,
        up_s=20.0,
    ),
    "training-20-20": Through("5 × 50 ms, 20 s down and 20 s up", iterations=2500, down_s=20.0, up_s=20.0),
}
RESTART = {"restart": OnOnePath("one path, 20 s down and 20 s up")}


def measure(name: str, folder: Path) -> Cell:
    """Measures a cell afresh; folder: for its applications' files. Raises ScenarioError for no such cell."""
    if name in THROUGH:
        return _through(THROUGH[name], folder)
    if name in RESTART:
        return _on_one_path(RESTART[name], folder)
    if name in OTHERS:
        return OTHERS[name](folder)
    raise ScenarioError(f"cell: there is no {name!r}; take one of {', '.join(CELLS)}")


def _through(asked: Through, folder: Path) -> Cell:
    job = Training(iterations=asked.iterations)
    plan = Plan(name=NAME, hosts=asked.hosts, bfd=asked.bfd, rto_min_s=asked.rto_min_s)
    stalls = folder / "stalls.txt"
    with (
        _standing(plan) as fabric,
        _fast_paths(fabric, asked.fast_path),
        sentinel.sentinel(stalls, STALL_S),
    ):
        places = _places(fabric)
        quiet = training.run(job, places, folder / "quiet", within_s=_LIMIT_S)
        struck, disturbed = _disturbed(fabric, job, asked, folder / "faults")
    return {
        "asked": asdict(asked),
        "quiet_s": quiet.iteration_s.tolist(),
        "iteration_s": disturbed.iteration_s.tolist(),
        "faults": _faults(struck, disturbed.ready_ns),
        "stalls": _stalls(sentinel.read(stalls), disturbed.ready_ns),
        "same_loss": bool(np.array_equal(quiet.loss, disturbed.loss)),
        "same_model": len({*quiet.digests, *disturbed.digests}) == 1,
        "loss": [float(quiet.loss[:, :20].mean()), float(quiet.loss[:, -20:].mean())],
    }


def _disturbed(fabric: Fabric, job: Training, asked: Through, folder: Path) -> tuple[list[Struck], Trained]:
    places = _places(fabric)
    with training.start(job, places, folder) as running:
        running.wait_computing(_START_S)
        with _faults_of(fabric, asked.down_s, asked.up_s) as cycle:
            running.wait(_LIMIT_S)
    trained = training.read(folder, len(places))
    if trained.errors:
        raise TwinbedError(f"{asked.title}: the training failed: {'; '.join(trained.errors)}")
    return cycle.struck, trained


def _on_one_path(asked: OnOnePath, folder: Path) -> Cell:
    job = Training(iterations=asked.iterations, timeout_s=asked.timeout_s, save_every=asked.save_every)
    with _standing(Plan(name=NAME)) as fabric:
        places = _places(fabric)
        faults.inject(fabric, Fault(FaultKind.TOR, tor=1, silent=False))
        quiet = training.run(job, places, folder / "quiet", within_s=_LIMIT_S)
        only = [Fault(FaultKind.PORT, host=0, uplink=0)]
        began_ns = time.monotonic_ns()
        with Cycle(fabric, only, down_s=asked.down_s, up_s=asked.up_s) as cycle:
            lives = restart.run_to_end(
                job,
                places,
                folder / "faults",
                path_is_back=lambda: answers(places[0], places[1]),
                within_s=_LIMIT_S,
            )
    lost = restart.losses(lives)
    ready_ns = lives[0].trained.ready_ns
    return {
        "asked": asdict(asked),
        "quiet_s": quiet.iteration_s.tolist(),
        "save_s": quiet.save_s.tolist(),
        "start_s": (ready_ns - began_ns) * 1e-9,
        "job_s": (int(lives[-1].trained.ended_ns[-1]) - ready_ns) * 1e-9,
        "lost_s": {key: getattr(lost, key).tolist() for key in ("detect_s", "path_s", "start_s", "redo_s")},
        "faults": _faults(cycle.struck, ready_ns),
        "same_loss": bool(np.array_equal(quiet.loss, restart.curve(lives))),
        "same_model": len({*quiet.digests, *lives[-1].trained.digests}) == 1,
        "errors": sorted({error for life in lives for error in life.trained.errors}),
    }


def _streams(_: Path) -> Cell:
    with _standing(Plan(name=NAME)) as fabric:
        source, destination = _places(fabric)
        with _faults_of(fabric) as cycle:
            found = streams.measure(source, destination, seconds=30, streams=4, rate_bps=50e6)
    return {
        "rate_bps": found.rate_bps.tolist(),
        "retransmits": found.retransmits,
        "error": found.error,
        "longest_stall_s": found.longest_stall_s,
        "faults": len(cycle.struck),
    }


def _web(folder: Path) -> Cell:
    cell: Cell = {}
    with _standing(Plan(name=NAME)) as fabric:
        source, destination = _places(fabric)
        with web.server(destination, folder / "web"):
            for key, keep in (("kept", True), ("new", False)):
                with (
                    _faults_of(fabric) as cycle,
                    web.Clients(source, destination.address, keep=keep, clients=8) as clients,
                ):
                    _wait_faults(cycle, 6)
                found = clients.requests()
                cell[key] = {
                    "faults": len(cycle.struck),
                    "took_s": found.took_s.tolist(),
                    "errors": list(found.errors),
                }
                up.wait_converged(fabric, _START_S)
    return cell


def _packets(_: Path) -> Cell:
    flows, each = 64, 4
    with _standing(Plan(name=NAME)) as fabric:
        source, destination = fabric.hosts
        with ExitStack() as stack:
            frames = {uplink: stack.enter_context(wire.taken(source, uplink)) for uplink in source.uplinks}
            payloads = wire.send(source.endpoints[0], destination.endpoints[0], flows=flows, count=each)
            wire.wait_for(list(frames.values()), payloads, _START_S)
        found = [
            wire.read(taken, wire.expected(fabric, source, uplink, destination))
            for uplink, taken in frames.items()
        ]
    arrived = sorted(payload for seen in found for payload in seen.payloads)
    return {
        "flows": flows,
        "packets": [seen.packets for seen in found],
        "wrong": sorted({wrong for seen in found for wrong in seen.wrong}),
        "all_payloads": arrived == sorted(payloads),
        "ttl": sorted({ttl for seen in found for ttl in seen.ttls}),
        "fragments_refused": sum(seen.fragments_refused for seen in found),
        "flows_by_uplink": [len(seen.source_ports) for seen in found],
        "source_ports": len(
            {port for seen in found for ports in seen.source_ports.values() for port in ports}
        ),
        "ports_of_a_flow": max(len(ports) for seen in found for ports in seen.source_ports.values()),
    }


OTHERS: dict[str, Callable[[Path], Cell]] = {"streams": _streams, "web": _web, "packets": _packets}
CELLS = (*THROUGH, *RESTART, *OTHERS)


@contextmanager
def _standing(plan: Plan) -> Iterator[Fabric]:
    fabric = up.up(plan)
    try:
        yield fabric
    finally:
        leftovers.down(plan.name)


@contextmanager
def _fast_paths(fabric: Fabric, wanted: bool) -> Iterator[None]:
    running = processes.start(fabric) if wanted else ()
    try:
        yield
    finally:
        processes.stop(running)


def _places(fabric: Fabric) -> list[Endpoint]:
    return [host.endpoints[0] for host in fabric.hosts]


@contextmanager
def _faults_of(fabric: Fabric, down_s: float = 2.0, up_s: float = 1.0) -> Iterator[Cycle]:
    reach = Reach(fabric)
    try:
        with Cycle(fabric, round_robin(fabric), down_s=down_s, up_s=up_s, healed=reach.whole) as cycle:
            yield cycle
    finally:
        reach.close()


def _wait_faults(cycle: Cycle, count: int) -> None:
    until = time.monotonic() + _LIMIT_S
    while len(cycle.struck) < count and time.monotonic() < until:
        time.sleep(0.1)


def _faults(struck: Sequence[Struck], origin_ns: int) -> list[dict[str, float]]:
    return [
        {
            "at_s": (each.at_ns - origin_ns) * 1e-9,
            "cleared_s": (each.cleared_ns - origin_ns) * 1e-9,
            "out_per_s": each.before.out_per_s if each.before else np.nan,
            "in_per_s": each.before.in_per_s if each.before else np.nan,
        }
        for each in struck
    ]


def _stalls(seen: Sequence[sentinel.Stall], origin_ns: int) -> list[list[float]]:
    """Begin and end of each; those before the origin are another run's."""
    return [
        [(each.begin_ns - origin_ns) * 1e-9, (each.end_ns - origin_ns) * 1e-9]
        for each in seen
        if each.begin_ns >= origin_ns
    ]


def store_of_this_code() -> Path:
    """The folder of cells that this version of the applications measured."""
    digest = hashlib.sha256()
    for part in _CODE:
        for file in sorted((ROOT / part).rglob("*.py")):
            digest.update(file.read_bytes())
    return STORES / digest.hexdigest()[:10]


def load(store: Path) -> dict[str, Cell]:
    """All cells that a store has, by name."""
    found = {name: store / f"{name}.json" for name in CELLS}
    return {name: json.loads(path.read_text("utf-8")) for name, path in found.items() if path.exists()}


def fill(store: Path, names: Sequence[str] = CELLS, *, say: Callable[[str], None] = print) -> None:
    """Measures those of the named cells that the store lacks. Raises TwinbedError where one cannot be."""
    store.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = store / f"{name}.json"
        if path.exists():
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="twinbed-apps-") as folder:
            _write(path, measure(name, Path(folder)))
        say(f"{name}: {time.monotonic() - began:.0f} s")


def _write(path: Path, cell: Cell) -> None:
    write_whole(path, lambda file: file.write(json.dumps(cell).encode()))


def main() -> int:
    """Exit code 2 with one line where it cannot be done."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.fidelity_fabric.applications", description=__doc__
    )
    parser.add_argument("--cell", action="append", choices=CELLS, help="only these (default: all)")
    options = parser.parse_args()
    try:
        fill(store_of_this_code(), options.cell or CELLS)
    except TwinbedError as error:
        sys.stderr.write(f"studies.fidelity_fabric.applications: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
