"""Impair links of a fabric that is up at the times of a plan or a user, and repair them.

For: `twinbed testbed fault`, and the impairments of a plan. Not for: how a link is broken (faults.py).
Source: our design. A process of the fabric, `python -m testbed.fabric.impairments NAME`, carries out
impairments of a plan that end, flap or begin later. It ends with the fabric.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from control.fabric import Fault, FaultKind
from testbed.fabric import doctor, faults, state
from testbed.fabric.links import popen_in
from testbed.fabric.model import Fabric, Impairment
from testbed.fabric.ownership import state_folder
from testbed.fabric.plan import fabric_of
from twinbed import BackendError, TwinbedError

_FOR_EVER_S = 1e9
"""Duration of an impairment without an end, s: 31 years."""

Wait = Callable[[float], object]
"""A function that waits for this many seconds."""


def fault_at(fabric: Fabric, impairment: Impairment) -> Fault:
    """Return the silent fault of the impairment's link. Raises ScenarioError if there is no such link."""
    fabric.plan.check_link(impairment)
    way = impairment.one_way
    if impairment.spine is not None:
        return Fault(FaultKind.PORT, uplink=impairment.spine, tor=impairment.tor, one_way=way)
    uplink = impairment.tor % fabric.plan.uplinks
    return Fault(FaultKind.PORT, host=impairment.host, uplink=uplink, one_way=way)


def require(impairment: Impairment) -> None:
    """Raise BackendError if this kernel cannot impair a link in this way."""
    if impairment.needs_netem and not doctor.has_netem():
        raise BackendError(
            f"{impairment.link}: delay and corrupt need netem, which this kernel lacks; the VM's has it "
            "(python -m testbed.vm -- COMMAND), or take loss, flap or silent"
        )


def begin(fabric: Fabric, impairment: Impairment) -> None:
    """Impair the link now. Raises ScenarioError if there is no such link, BackendError if that fails."""
    fault = fault_at(fabric, impairment)
    if impairment.loss is not None:
        faults.lose(fabric, fault, impairment.loss)
    if impairment.needs_netem:
        faults.degrade(fabric, fault, impairment.delay_s or 0.0, impairment.corrupt or 0.0)
    elif impairment.loss is None:
        faults.inject(fabric, fault if impairment.silent else _loud(fault))


def end(fabric: Fabric, impairment: Impairment) -> None:
    """Repair the link, whatever impaired it. Raises as `begin` does."""
    whole = replace(fault_at(fabric, impairment), one_way=None)
    faults.mend(fabric, whole)
    faults.clear(fabric, whole)
    faults.clear(fabric, _loud(whole))


def play(fabric: Fabric, impairment: Impairment, wait: Wait = time.sleep) -> None:
    """Begin the impairment when it is time, flap, and repair the link at the end, also after an exception.

    Raises as `begin` does.
    """
    wait(impairment.at_s)
    left_s = _FOR_EVER_S if impairment.for_s is None else impairment.for_s
    try:
        while left_s > 0:
            begin(fabric, impairment)
            turn_s = min(impairment.flap_s or left_s, left_s)
            wait(turn_s)
            end(fabric, impairment)
            wait(min(turn_s, left_s - turn_s))
            left_s -= 2 * turn_s
    finally:
        end(fabric, impairment)


def launch(fabric: Fabric) -> None:
    """Begin the plan's impairments. A process of the fabric carries out those with times."""
    later = False
    for impairment in fabric.plan.impairments:
        if impairment.is_timed:
            later = True
        else:
            begin(fabric, impairment)
    if later:
        name = fabric.plan.name
        process = (sys.executable, "-m", "testbed.fabric.impairments", name, str(time.monotonic()))
        with (state_folder(name) / "impairments.err").open("wb") as errors:
            command = ("setsid", "--fork", *process)
            popen_in(fabric.hosts[0].namespace, command, stdout=subprocess.DEVNULL, stderr=errors).wait()


def main(name: str, since_s: float) -> None:
    """Play the timed impairments of the fabric of this name, which has been up since since_s (monotonic)."""
    fabric = fabric_of(state.read(name).plan)

    def one(impairment: Impairment) -> None:
        try:
            late_s = time.monotonic() - since_s
            play(fabric, replace(impairment, at_s=max(impairment.at_s - late_s, 0.0)))
        except TwinbedError as error:
            print(f"{impairment.link}: {error}", file=sys.stderr, flush=True)

    timed = [impairment for impairment in fabric.plan.impairments if impairment.is_timed]
    for impairment in timed:
        threading.Thread(target=one, args=(impairment,)).start()


def _loud(fault: Fault) -> Fault:
    return replace(fault, kind=FaultKind.LINK, silent=False, one_way=None)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
