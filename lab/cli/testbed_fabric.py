"""`twinbed testbed fault|exec|graph`: breaks a link of a fabric that is up, runs commands in it, draws it.

For: these verbs. Not for: breaking (testbed.fabric.faults), or the testbed's other verbs (testbed.py).
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import usable
from twinbed import ScenarioError

if TYPE_CHECKING:
    from control.fabric import Fault
    from testbed.fabric.model import Fabric

_LINK = re.compile(r"h(?P<host>[0-9]+):tor(?P<uplink>[0-9]+)")
_PER_CENT = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)%")
_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>ms|s)")

_Name = Annotated[str, typer.Option("--name", metavar="NAME", help="The fabric's name.")]


def fault(
    link: Annotated[str, typer.Argument(metavar="LINK", help="A host's link to a ToR: h0:tor1.")],
    name: _Name = "fabric",
    silent: Annotated[
        bool, typer.Option("--silent", help="Drop everything and keep the carrier.", show_default=False)
    ] = False,
    one_way: Annotated[
        str | None, typer.Option("--one-way", metavar="out|in", help="Only what the host sends, or receives.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option("--loss", metavar="5%", help="Drop this share of the packets, silently.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="2ms", help="Refused: this backend has no netem.")
    ] = None,
    corrupt: Annotated[
        bool, typer.Option("--corrupt", help="Refused: this backend has no netem.", show_default=False)
    ] = False,
    flap: Annotated[
        str | None, typer.Option("--flap", metavar="10s", help="Break and repair in turns, each this long.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", callback=usable, metavar="S", help="Repair after this time.")
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Repair the link and do nothing else.", show_default=False)
    ] = False,
) -> None:
    """Break a link of a fabric that is up: lost carrier, or silently, or a share of its packets.

    It stays broken until --clear, or until --seconds or Ctrl-C where one of --flap and --seconds is given.
    """
    from testbed.fabric import faults

    if delay is not None or corrupt:
        raise ScenarioError(
            "--delay and --corrupt need netem, which this testbed's links lack; take --loss or --silent"
        )
    share = None if loss is None else _share(loss)
    fabric = _loaded(name)
    wanted = _fault(link, one_way, silent=silent or share is not None or one_way is not None)
    if clear:
        _repair(fabric, wanted)
        return

    def begin() -> None:
        if share is None:
            faults.inject(fabric, wanted)
        else:
            faults.lose(fabric, wanted, share)

    if flap is None and seconds is None:
        begin()
        typer.echo(f"{link} is broken. Repair it: sudo twinbed testbed fault {link} --name {name} --clear")
        return
    each_s = seconds if flap is None else _duration_s(flap)
    end_s = time.monotonic() + seconds if seconds is not None else float("inf")
    assert each_s is not None
    try:
        while True:
            begin()
            _wait(each_s, end_s)
            _repair(fabric, wanted)
            if flap is None or time.monotonic() >= end_s:
                break
            _wait(each_s, end_s)
            if time.monotonic() >= end_s:
                break
    finally:
        _repair(fabric, wanted)


def run_inside(
    place: Annotated[
        str, typer.Argument(metavar="PLACE", help="A host (h0), a ToR (t0) or an endpoint (h0e0).")
    ],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="With its arguments, after --.")],
    name: _Name = "fabric",
) -> None:
    """Run a command in a namespace of a fabric that is up. The exit code is the command's."""
    from testbed.fabric.capture import devices_at
    from testbed.fabric.links import popen_in

    namespace, _ = devices_at(_loaded(name), place)
    process = popen_in(namespace, command, stdin=None)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        # The terminal sent it to the command as well.
        code = process.wait()
    raise typer.Exit(code if code >= 0 else 128 - code)


def graph(name: _Name = "fabric") -> None:
    """Print a fabric that is up as a Mermaid diagram: ToRs, hosts, storage, endpoints and their links."""
    typer.echo(diagram(_loaded(name)))


def diagram(fabric: Fabric) -> str:
    """Returns the diagram's text."""
    lines = ["graph TD"]
    if fabric.plan.peer_link:
        lines.append("  t0[t0] ---|peer| t1[t1]")
    for host in fabric.hosts:
        drawn = f"h{host.index}[(h{host.index} storage)]" if host.storage else f"h{host.index}[h{host.index}]"
        for uplink in host.uplinks:
            tor = fabric.tors[uplink.tor]
            lines.append(f"  t{tor.index}[t{tor.index}] ---|{uplink.device}| {drawn}")
        for end in host.endpoints:
            part = _part(end.namespace)
            lines.append(
                f"  h{host.index} ---|{end.representor}| {part}([{part} {end.address} VNI {end.vni}])"
            )
    return "\n".join(lines)


def _loaded(name: str) -> Fabric:
    from testbed.fabric.up import load

    return load(name)


def _part(namespace: str) -> str:
    return namespace.rpartition("-")[2]


def _fault(link: str, one_way: str | None, *, silent: bool) -> Fault:
    from control.fabric import Direction, Fault, FaultKind

    parts = _LINK.fullmatch(link)
    if parts is None:
        raise ScenarioError(f"{link}: not a link; take a host and its uplink, as h0:tor1")
    if one_way not in (None, "out", "in"):
        raise ScenarioError(f"--one-way: {one_way} is no direction; take out or in")
    way = None if one_way is None else {"out": Direction.OUT, "in": Direction.IN}[one_way]
    kind = FaultKind.PORT if silent else FaultKind.LINK
    return Fault(kind, host=int(parts["host"]), uplink=int(parts["uplink"]), silent=silent, one_way=way)


def _repair(fabric: Fabric, fault: Fault) -> None:
    """Repair every kind of fault of the fault's link."""
    from control.fabric import FaultKind
    from testbed.fabric import faults

    faults.mend(fabric, fault)
    faults.clear(fabric, replace(fault, kind=FaultKind.PORT, silent=True, one_way=None))
    faults.clear(fabric, replace(fault, kind=FaultKind.LINK, silent=False, one_way=None))


def _share(text: str) -> float:
    parts = _PER_CENT.fullmatch(text)
    if parts is None:
        raise ScenarioError(f"--loss: {text} is no share; take a number and %, as 5%")
    return float(parts["number"]) / 100


def _duration_s(text: str) -> float:
    parts = _DURATION.fullmatch(text)
    if parts is None or not float(parts["number"]):
        raise ScenarioError(f"--flap: {text} is no time; take a number and s or ms, as 10s")
    return float(parts["number"]) / (1e3 if parts["unit"] == "ms" else 1)


def _wait(lasts_s: float, end_s: float) -> None:
    time.sleep(max(min(lasts_s, end_s - time.monotonic()), 0.0))
