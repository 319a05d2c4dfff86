"""CPU demand is used as declared, and runnable parts share the CPU."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from testbed.containers.services.burn import QUANTUM_S, Burner


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("demand_s", [0.0002, 0.004])
def test_parts_use_the_demand_declared(threads: float, demand_s: float) -> None:
    async def scene() -> tuple[float, float]:
        burner = Burner(threads)
        await burner.burn(0.001)
        began_s = time.process_time()
        used_s = 0.0
        for _ in range(10):
            used_s += sum(await asyncio.gather(*(burner.burn(demand_s) for _ in range(4))))
        return used_s, time.process_time() - began_s

    used_s, process_s = uvloop.run(scene())
    # Each part may use a turn more where neighbours make the same work slower; the next one settles it.
    assert 0.95 * 40 * demand_s <= used_s <= 1.05 * 40 * demand_s + 10 * QUANTUM_S
    assert process_s >= 0.95 * 40 * demand_s


def test_a_short_part_ends_before_a_long_one_that_began_earlier() -> None:
    async def scene() -> list[str]:
        burner, ended = Burner(1), []

        async def part(name: str, demand_s: float) -> None:
            await burner.burn(demand_s)
            ended.append(name)

        await asyncio.gather(part("long", 0.05), part("short", 0.002))
        return ended

    assert uvloop.run(scene()) == ["short", "long"]


def test_no_demand_uses_nothing_and_ends() -> None:
    async def scene() -> float:
        return await Burner(2).burn(0.0)

    assert uvloop.run(scene()) == 0.0


def test_the_loop_answers_while_a_part_burns() -> None:
    async def scene() -> int:
        burner, turns = Burner(1), 0
        part = burner.burn(0.05)
        while not part.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert uvloop.run(scene()) > 10
