"""The engine against a plain model of shared CPUs, quotas, workers and calls on random graphs.

The plain model looks at every container at each event and knows no queue, tree or virtual time. It takes the
same random numbers in the same order, so each request must end at the same instant in both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.services import Draw
from tests.twin.containers.requests.request_world import PERIOD_S, Call, Driver, Handler, Service, world
from twin.containers.requests.engine.records import OVERDRAFT_S
from twin.containers.requests.tables import NUMBERS

PERIODS = 60


@dataclass
class Visit:
    handler: Handler
    place: int
    done: Callable[[], None]
    part_s: float
    stage: int = 0
    left_s: float = 0.0
    open: int = 0


@dataclass
class Place:
    """A container."""

    service: Service
    quota: float
    pool: float
    running: list[Visit] = field(default_factory=list)
    line: deque[tuple[Handler, Callable[[], None]]] = field(default_factory=deque)
    busy: int = 0
    used: float = 0.0
    silo_end: float = 0.0

    def refill(self) -> None:
        """Fill the pool for the next period. A CPU keeps what it took: a slice of 5 ms, or 1 ms of it."""
        kept = self.silo_end - self.used
        if kept < 0.0 and self.running:
            kept = 0.005 - -kept % 0.005
        kept = max(min(kept, self.pool), 0.0)
        self.silo_end = self.used + kept
        self.pool = self.quota * PERIOD_S + min(self.pool - kept, 0.0) + kept

    def speed(self) -> float:
        if not self.running or self.pool + OVERDRAFT_S <= 1e-13:
            return 0.0
        return min(1.0, self.service.threads / len(self.running))


class Plain:
    """Requests through `services`. The first handler of the first service is what clients call."""

    def __init__(self, services: list[Service], quota: float) -> None:
        self.now, self.places, self.later, self.turn = 0.0, [], [], {}
        self.handlers, self.numbers = {}, random_numbers()
        for service in services:
            for name, handler in service.handlers.items():
                self.handlers[name] = (handler, len(self.places), service)
            self.places += [Place(service, quota, quota * PERIOD_S) for _ in range(service.replicas)]

    def run(self, at_s: np.ndarray, entry: str) -> list[float]:
        ends = [np.nan] * len(at_s)
        due = deque(enumerate(at_s.tolist()))
        for row in range(PERIODS):
            while self._next(due, (row + 1) * PERIOD_S, ends, entry):
                pass
            for place in self.places:
                place.refill()
        return ends

    def _next(self, due: deque[tuple[int, float]], until_s: float, ends: list[float], entry: str) -> bool:
        """Handle the next event before until_s. Return False if there is none, and the clock is there."""
        left = [until_s - self.now] + [moment - self.now for moment, _, _ in self.later]
        left += [due[0][1] - self.now] if due else []
        for place in self.places:
            if speed := place.speed():
                left.append(min(visit.left_s for visit in place.running) / speed)
                left.append((place.pool + OVERDRAFT_S) / (speed * len(place.running)))
        step = max(min(left), 0.0)
        for place in self.places:
            speed = place.speed()
            place.pool -= step * speed * len(place.running)
            place.used += step * speed * len(place.running)
            for visit in place.running:
                visit.left_s -= step * speed
        self.now += step
        for place in self.places:
            for visit in [visit for visit in place.running if visit.left_s <= 1e-12]:
                place.running.remove(visit)
                taken = place.used - place.silo_end
                if not place.running and taken > 0.0:
                    place.silo_end = place.used + min(0.001, -taken % 0.005)
                self._part_done(visit)
        for entry_of in [entry_of for entry_of in self.later if entry_of[0] <= self.now + 1e-13]:
            self.later.remove(entry_of)
            self._arrive(*entry_of[1:])
        while due and due[0][1] <= self.now + 1e-13:
            number, _ = due.popleft()
            self._arrive(entry, lambda number=number: ends.__setitem__(number, self.now))
        return step < left[0]

    def _arrive(self, name: str, done: Callable[[], None]) -> None:
        handler, first, service = self.handlers[name]
        turn = self.turn.get(first, 0)
        self.turn[first] = (turn + 1) % service.replicas
        place = self.places[first + turn]
        if place.busy < service.workers:
            place.busy += 1
            self._serve(handler, first + turn, done)
        else:
            place.line.append((handler, done))

    def _serve(self, handler: Handler, place: int, done: Callable[[], None]) -> None:
        part_s = handler.mean_s * next(self.numbers) / (len(handler.stages) + 1)
        self._begin(Visit(handler, place, done, part_s))

    def _begin(self, visit: Visit) -> None:
        visit.left_s = visit.part_s
        self.places[visit.place].running.append(visit)

    def _part_done(self, visit: Visit) -> None:
        if visit.stage < len(visit.handler.stages):
            calls = visit.handler.stages[visit.stage]
            visit.stage, visit.open = visit.stage + 1, len(calls)
            for call in calls:
                self._call(call, visit)
            return
        place = self.places[visit.place]
        place.busy -= 1
        if place.line:
            place.busy += 1
            handler, done = place.line.popleft()
            self._serve(handler, visit.place, done)
        visit.done()

    def _call(self, call: Call, visit: Visit) -> None:
        def answered() -> None:
            visit.open -= 1
            if visit.open == 0:
                self._begin(visit)

        if call.network_s > 0:
            self.later.append((self.now + call.network_s, call.to, answered))
        else:
            self._arrive(call.to, answered)


def random_numbers() -> Iterator[float]:
    """Yield the exponential numbers that the engine draws from the driver's seed."""
    rng = np.random.default_rng(np.random.SeedSequence(1))
    yield from rng.standard_exponential(NUMBERS).tolist()
    rng.standard_normal(NUMBERS), rng.random(NUMBERS)
    while True:
        yield float(rng.standard_exponential())


def random_services(rng: np.random.Generator, count: int) -> list[Service]:
    """Services that call only later ones, so that no calls go in a circle."""
    services = []
    for k in range(count):
        callees = np.arange(k + 1, count)
        stages = [
            [
                Call(f"h{callee}", network_s=float(rng.choice([0.0, rng.uniform(1e-4, 0.01)])))
                for callee in rng.choice(callees, min(len(callees), rng.integers(1, 4)), replace=False)
            ]
            for _ in range(rng.integers(0, 3) if len(callees) else 0)
        ]
        handler = Handler(float(rng.uniform(0.001, 0.03)), stages, Draw.EXPONENTIAL)
        threads, workers = float(rng.choice([1.0, 1.5, 3.0])), int(rng.choice([2, 5, 256]))
        replicas = int(rng.integers(1, 3))
        services.append(Service({f"h{k}": handler}, replicas=replicas, threads=threads, workers=workers))
    return services


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 7), st.sampled_from([0.3, 0.8, np.inf]))
def test_each_request_ends_at_the_same_instant(seed, count, quota):
    rng = np.random.default_rng(seed)
    services = random_services(rng, count)
    at_s = np.sort(rng.uniform(0.0, 4.0, 60))
    log = Driver(world(services, at_s, periods=PERIODS), quota=quota).run()
    assert Plain(services, quota).run(at_s, "h0") == pytest.approx(log.end_s.tolist(), abs=1e-7, nan_ok=True)
