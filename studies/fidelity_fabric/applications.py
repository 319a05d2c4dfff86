"""Measures unmodified applications through real faults: `python -m studies applications`.

For: cells of training, checkpoint and restart, streams, web and packets. Each cell is a file in a store, so
an interrupted measurement continues where it stopped. Not for: the twin's predictions (application_twin.py)
nor tables (application_rows.py). A cell raises and removes its own fabric. All times in a cell's file are
seconds after its application began to compute or to send.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from control.fabric import BfdTimers, Fault, FaultKind
from studies import harness
from studies.harness import Asked
from testbed.fabric import faults, leftovers, sentinel, up
from testbed.fabric.apps import restart, streams, training, web, wire
from testbed.fabric.apps.cycle import Cycle, Struck, round_robin
from testbed.fabric.apps.paths import answers
from testbed.fabric.apps.training import Trained, Training
from testbed.fabric.fast_path import processes
from testbed.fabric.model import Endpoint, Fabric, Plan
from testbed.fabric.reach import Reach
from twinbed import ScenarioError, TwinbedError

NAME = "apps"
"""Name of the fabrics that are taken up."""

STORE, CODE = "applications", ("testbed/fabric/apps",)
STALL_S = 0.1
"""Least length of a stall of the machine that is recorded, s: BFD survives it, but an iteration shows it."""

_START_S, _LIMIT_S = 120.0, 480.0

Cell = dict[str, Any]
"""The contents of a cell's file."""


@dataclass(frozen=True, slots=True)
class Through:
    """A training, once without faults and once through silent faults of one port after the other.

    title: the setting in words.
    hosts: number of hosts.
    bfd: timers of BFD.
    rto_min_s: TCP's least retransmission timeout, s; None: the kernel's.
    fast_path: whether hosts have a fast path, in both runs.
    iterations: number of iterations.
    down_s: length of each fault, s.
    up_s: least time between two faults, s; it also lasts until all routes are back.
    """

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
    """A training with checkpoints whose hosts have one path only: it dies of a fault and starts again.

    title: the setting in words.
    iterations: number of iterations.
    timeout_s: timeout of gloo, s.
    save_every: number of iterations between two saves.
    down_s, up_s: length of each fault, and time between two faults, s.
    """

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
    """Measure a cell. folder: for its applications' files. Raises ScenarioError for an unknown cell."""
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
    with _standing(plan) as fabric, _fast_paths(fabric, asked.fast_path), sentinel.sentinel(stalls, STALL_S):
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
            measured = streams.measure(source, destination, seconds=30, streams=4, rate_bps=50e6)
    return {
        "rate_bps": measured.rate_bps.tolist(),
        "retransmits": measured.retransmits,
        "error": measured.error,
        "longest_stall_s": measured.longest_stall_s,
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
                requests = clients.requests()
                cell[key] = {
                    "faults": len(cycle.struck),
                    "took_s": requests.took_s.tolist(),
                    "errors": list(requests.errors),
                }
                up.wait_converged(fabric, _START_S)
    return cell


def _packets(_: Path) -> Cell:
    flows, of_flow = 64, 4
    with _standing(Plan(name=NAME)) as fabric:
        source, destination = fabric.hosts
        with ExitStack() as stack:
            frames = {uplink: stack.enter_context(wire.taken(source, uplink)) for uplink in source.uplinks}
            payloads = wire.send(source.endpoints[0], destination.endpoints[0], flows=flows, count=of_flow)
            wire.wait_for(list(frames.values()), payloads, _START_S)
        uplinks = [
            wire.read(taken, wire.expected(fabric, source, uplink, destination))
            for uplink, taken in frames.items()
        ]
    arrived = sorted(payload for seen in uplinks for payload in seen.payloads)
    return {
        "flows": flows,
        "packets": [seen.packets for seen in uplinks],
        "wrong": sorted({wrong for seen in uplinks for wrong in seen.wrong}),
        "all_payloads": arrived == sorted(payloads),
        "ttl": sorted({ttl for seen in uplinks for ttl in seen.ttls}),
        "fragments_refused": sum(seen.fragments_refused for seen in uplinks),
        "flows_by_uplink": [len(seen.source_ports) for seen in uplinks],
        "source_ports": len(
            {port for seen in uplinks for ports in seen.source_ports.values() for port in ports}
        ),
        "ports_of_a_flow": max(len(ports) for seen in uplinks for ports in seen.source_ports.values()),
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
            "at_s": (fault.at_ns - origin_ns) * 1e-9,
            "cleared_s": (fault.cleared_ns - origin_ns) * 1e-9,
            "out_per_s": fault.before.out_per_s if fault.before else np.nan,
            "in_per_s": fault.before.in_per_s if fault.before else np.nan,
        }
        for fault in struck
    ]


def _stalls(seen: Sequence[sentinel.Stall], origin_ns: int) -> list[list[float]]:
    """Return begin and end of the stalls after the origin; earlier ones belong to another run."""
    return [
        [(stall.begin_ns - origin_ns) * 1e-9, (stall.end_ns - origin_ns) * 1e-9]
        for stall in seen
        if stall.begin_ns >= origin_ns
    ]


def load(store: Path | None = None) -> dict[str, Cell]:
    """Return all cells that a store (None: this code's) has, by name."""
    folder = store or harness.store_of_code(STORE, CODE)
    files = {name: folder / f"{name}.json" for name in CELLS}
    return {name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.exists()}


def fill(store: Path, names: Sequence[str] = CELLS, check: Callable[[], None] = lambda: None) -> None:
    """Measure those of the named cells that the store lacks; `check` may raise before each of them.

    Raises TwinbedError where a cell cannot be measured.
    """
    for name in names:
        path = store / f"{name}.json"
        if path.exists():
            continue
        check()
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="twinbed-apps-") as folder:
            harness.write(path, json.dumps(measure(name, Path(folder))))
        harness.say(f"{name}: {time.monotonic() - began:.0f} s")


def make(asked: Asked) -> int:
    """Measure what the store lacks. asked.only: the names of cells."""
    fill(asked.store or harness.store_of_code(STORE, CODE), asked.only or CELLS, harness.clock(asked.minutes))
    return 0
