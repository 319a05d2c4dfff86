"""`twinbed testbed fault|exec|graph`: breaks a link of a fabric that is up, runs commands in it, draws it.

For: these verbs. Not for: breaking (testbed.fabric.faults), or the testbed's other verbs (testbed.py).
"""

from __future__ import annotations

import re
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from lab.cli.options import argument, flag, option, write

if TYPE_CHECKING:
    from testbed.fabric.model import Fabric

_CORRUPT, _CORRUPTED = "--corrupt", "1%"
_NODE = re.compile(r"\b(h|t|s|tor|spine|host)([0-9]+)")
_LINK = re.compile(r"h[0-9]+:tor[0-9]+|t[0-9]+:spine[0-9]+")


class Fault(TyperCommand):
    """`fault`, whose --corrupt may stand without a share."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the remaining arguments, as click does. A bare --corrupt, also before a link, gets its share
        first."""
        words: list[str] = []
        for word, following in zip(args, [*args[1:], "-"], strict=True):
            is_bare = word == _CORRUPT and (following.startswith("-") or ":" in following)
            words += [word, _CORRUPTED] if is_bare else [word]
        return super().parse_args(ctx, words)


_Name = Annotated[str, option("NAME", "The fabric's name.", "--name")]


def fault(
    link: Annotated[
        str,
        argument(
            "LINK",
            "A host's link to a ToR, h0:tor1, or a ToR's to a spine, t0:spine1; of a --topo also two of your "
            "nodes, web:leaf1.",
        ),
    ],
    name: _Name = "fabric",
    silent: Annotated[
        bool, flag("--silent", "Drop everything and keep the carrier.", show_default=False)
    ] = False,
    one_way: Annotated[str | None, option("out|in", "Only what the host sends, or receives.")] = None,
    loss: Annotated[str | None, option("5%", "Drop this share of the packets, silently.")] = None,
    delay: Annotated[str | None, option("2ms", "Delay packets; needs a kernel with netem.")] = None,
    corrupt: Annotated[
        str | None, option("[1%]", "Corrupt this share, or 1% of the packets; needs netem, too.", _CORRUPT)
    ] = None,
    flap: Annotated[str | None, option("10s", "Impair and repair in turns, each this long.")] = None,
    at: Annotated[str | None, option("5s", "Begin after this time.")] = None,
    lasts: Annotated[str | None, option("20s", "Repair after this time.", "--for")] = None,
    clear: Annotated[
        bool, flag("--clear", "Repair the link and do nothing else.", show_default=False)
    ] = False,
) -> None:
    """Impair a link of a fabric that is up: take its carrier, drop all packets, or drop a share of them.

    Without --flap, --at and --for, the command returns, and the link stays impaired until --clear. With one
    of them, the command waits and repairs the link before it ends, even after Ctrl-C. A plan's `impairments`
    have the same keys.
    """
    from lab.ask.problems import validated
    from lab.fabric.real.impairments import ImpairmentFile, impairment
    from testbed.containers.interrupts import Interrupts
    from testbed.fabric import impairments
    from twinbed import ScenarioError

    asked = {
        "link": link, "silent": silent, "one_way": one_way, "loss": loss, "delay": delay, "corrupt": corrupt,
        "flap": flap, "at": at, "for": lasts,
    }  # fmt: skip
    if clear and (more := [key for key, value in asked.items() if value and key != "link"]):
        option = more[0].replace("_", "-")
        raise ScenarioError(f"testbed fault: --clear only repairs {link}; leave out --{option}")
    fabric = _loaded(name)
    asked["link"] = link = meant(fabric, link)
    wanted = impairment(validated(ImpairmentFile, asked, "testbed fault"), "testbed fault: ")
    tell_names(fabric, link)
    if clear:
        impairments.end(fabric, wanted)
        return
    impairments.require(wanted)
    if wanted.is_timed:
        with Interrupts():
            impairments.play(fabric, wanted)
        return
    impairments.begin(fabric, wanted)
    write(f"{link} is impaired. Repair it: sudo twinbed testbed fault {link} --name {name} --clear\n")


def run_inside(
    place: Annotated[
        str, argument("PLACE", "A host (h0), a switch (t0, s0), an endpoint (h0e0) or a node of your --topo.")
    ],
    command: Annotated[list[str], argument("COMMAND", "The command with its arguments, after --.")],
    name: _Name = "fabric",
) -> None:
    """Run a command in a namespace of a fabric that is up. The exit code is the command's."""
    from testbed.fabric.capture import devices_at
    from testbed.fabric.links import popen_in
    from twinbed import BackendError

    fabric = _loaded(name)
    place = meant(fabric, place)
    namespace, _ = devices_at(fabric, place)
    tell_names(fabric, place)
    if which(command[0]) is None:
        raise BackendError(f"{command[0]}: this machine has no such command")
    process = popen_in(namespace, command, stdin=None)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        # The terminal sent it to the command as well.
        code = process.wait()
    raise typer.Exit(code if code >= 0 else 128 - code)


def graph(name: _Name = "fabric") -> None:
    """Print a fabric that is up as a Mermaid diagram: switches, hosts, storage, endpoints and their links."""
    write(diagram(_loaded(name)) + "\n")


def diagram(fabric: Fabric) -> str:
    """Return the diagram's text."""
    lines = ["graph TD"]
    for tor in fabric.tors:
        if tor.peer and tor.index % 2 == 0:
            lines.append(f"  t{tor.index}[t{tor.index}] ---|peer| t{tor.index + 1}[t{tor.index + 1}]")
        for uplink in tor.uplinks:
            far = f"s{uplink.tor}[s{uplink.tor}]"
            lines.append(f"  {far} ---|{uplink.device}| t{tor.index}[t{tor.index}]")
    for host in fabric.hosts:
        drawn = f"h{host.index}[(h{host.index} storage)]" if host.storage else f"h{host.index}[h{host.index}]"
        for uplink in host.uplinks:
            tor = fabric.tors[uplink.tor]
            lines.append(f"  t{tor.index}[t{tor.index}] ---|{uplink.device}| {drawn}")
        for end in host.endpoints:
            part = end.namespace.rpartition("-")[2]
            lines.append(
                f"  h{host.index} ---|{end.representor}| {part}([{part} {end.address} VNI {end.vni}])"
            )
    text = "\n".join(lines)
    for node, own in fabric.own_names.items():
        text = text.replace(f"[{node}]", f"[{node} is {own}]")
    return text


def meant(fabric: Fabric, place: str) -> str:
    """Return a place or a link in the fabric's own names, where it may be in those of the user's topology.

    Text that is a name of the fabric's own means that, also if a node of the topology has the same name.
    """
    here = {router.namespace.rpartition("-")[2] for router in fabric.routers}
    if place in here or _LINK.fullmatch(place):
        return place
    nodes = {own: node for node, own in fabric.own_names.items()}
    ends = sorted((nodes.get(part, "") for part in place.split(":")), key=lambda node: "hts".find(node[:1]))
    kinds = "".join(node[:1] for node in ends)
    if kinds not in ("ht", "ts"):
        return nodes.get(place, place)
    return f"{ends[0]}:{'tor' if kinds == 'ht' else 'spine'}{ends[1][1:]}"


def tell_names(fabric: Fabric, place: str) -> None:
    """Say on standard error which nodes of the user's own topology a place or a link names, if their names
    differ."""
    own = fabric.own_names
    nodes = (f"{kind[0]}{index}" for kind, index in _NODE.findall(place))
    said = [f"{node} is {own[node]} of your topology" for node in nodes if own.get(node, node) != node]
    if said:
        typer.echo(f"{', '.join(said)}; twinbed testbed graph shows all names", err=True)


def _loaded(name: str) -> Fabric:
    from testbed.fabric.up import load

    return load(name)
