"""CPU demand is used as declared, and runnable parts share the CPU."""

from __future__ import annotations

import asyncio
import time

import pytest

from testbed.containers.services import burn
from testbed.containers.services.burn import QUANTUM_S, Burner


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("demand_s", [0.0002, 0.004])
async def test_parts_use_the_demand_declared(threads: float, demand_s: float) -> None:
    burner = Burner(threads)
    await burner.burn(0.001)
    began_s, used_s = time.process_time(), 0.0
    for _ in range(10):
        used_s += sum(await asyncio.gather(*(burner.burn(demand_s) for _ in range(4))))
    process_s = time.process_time() - began_s
    # Each part may use one turn more where neighbours slow the same work down; the next turn corrects that.
    assert 0.95 * 40 * demand_s <= used_s <= 1.05 * 40 * demand_s + 10 * QUANTUM_S
    assert process_s >= 0.95 * 40 * demand_s


async def test_a_call_that_the_machine_stretches_is_paid_for_by_many_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hypervisor that runs somebody else for 5 ms is seen as 5 ms of CPU time."""
    clock_ns = [0]
    monkeypatch.setattr(burn.time, "thread_time_ns", lambda: clock_ns[0])
    stolen_ns = [5_000_000]

    def pbkdf2_hmac(_: str, __: bytes, ___: bytes, iterations: int) -> None:
        clock_ns[0] += 250 * iterations + 5_000

    monkeypatch.setattr(burn, "pbkdf2_hmac", pbkdf2_hmac)
    burner = Burner(1)
    await burner.burn(0.001)

    def stretched(*arguments: object) -> None:
        pbkdf2_hmac(*arguments)  # type: ignore[arg-type]
        clock_ns[0] += stolen_ns.pop() if stolen_ns else 0

    monkeypatch.setattr(burn, "pbkdf2_hmac", stretched)
    assert await burner.burn(0.001) == pytest.approx(0.0055, abs=0.0006)
    used_s = [await burner.burn(0.001) for _ in range(200)]
    assert min(used_s) >= 0.00094
    assert used_s[-1] == pytest.approx(0.001, rel=0.02)
    assert sum(used_s) == pytest.approx(200 * 0.001 - 0.0045, abs=0.0006)


@pytest.mark.parametrize("demand_s", [60e-6, 150e-6, 400e-6])
async def test_parts_in_which_each_call_takes_longer_use_their_demand(
    monkeypatch: pytest.MonkeyPatch, demand_s: float
) -> None:
    """After a sleep the caches are cold, and the first call of a part takes 40 µs longer."""
    clock_ns = [0]
    cold = [False]
    monkeypatch.setattr(burn.time, "thread_time_ns", lambda: clock_ns[0])

    def pbkdf2_hmac(_: str, __: bytes, ___: bytes, iterations: int) -> None:
        clock_ns[0] += 250 * iterations + 5_000 + 40_000 * cold[0]
        cold[0] = False

    monkeypatch.setattr(burn, "pbkdf2_hmac", pbkdf2_hmac)
    burner, used_s = Burner(1), []
    for _ in range(200):
        cold[0] = True
        used_s.append(await burner.burn(demand_s))
    assert sum(used_s) == pytest.approx(200 * demand_s, rel=0.01)


async def test_a_short_part_ends_before_a_long_one_that_began_earlier() -> None:
    burner, ended = Burner(1), []

    async def part(name: str, demand_s: float) -> None:
        await burner.burn(demand_s)
        ended.append(name)

    await asyncio.gather(part("long", 0.05), part("short", 0.002))
    assert ended == ["short", "long"]


async def test_no_demand_uses_nothing_and_ends() -> None:
    assert await Burner(2).burn(0.0) == 0.0


async def test_the_loop_answers_while_a_part_burns() -> None:
    part, turns = Burner(1).burn(0.05), 0
    while not part.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
