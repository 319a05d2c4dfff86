"""`twinbed testbed doctor|up|capture|status|down`: what this machine can do, what is on it, its removal.

For: the verbs, for containers and fabrics. Not for: finding out (their doctors), making (testbed.fabric.up),
capturing (testbed.fabric.capture) nor removing (their leftovers).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, emit
from lab.runs.formats import Column, Record, Result

if TYPE_CHECKING:
    from testbed.containers.leftovers import Run
    from testbed.fabric.leftovers import Standing
    from testbed.fabric.model import Fabric

_FOUND_A_PROBLEM = 1
_PILLAR = Column("pillar", "For")
_FINDINGS = (
    _PILLAR,
    Column("feature", "Feature"),
    Column("status", "Status"),
    Column("found", "Found"),
    Column("meaning", "What it is for"),
    Column("cure", "What would mend it"),
)
_NEEDED = Column("needed", "Needed")
_COMMON = (
    _PILLAR,
    Column("run", "Name"),
    Column("state", "State"),
    Column("process", "Process"),
    Column("processes", "Processes inside", decimals=0),
    Column("networks", "Links and namespaces", decimals=0),
)
_DETAILS = (
    Column("groups", "Cgroups", decimals=0),
    Column("containers", "OCI bundles", decimals=0),
    Column("attached", "Limits to put back", decimals=0),
    Column("folders", "Temporary folders", decimals=0),
    Column("hosts", "Hosts", decimals=0),
    Column("tors", "ToRs", decimals=0),
    Column("daemons", "Daemons", decimals=0),
    Column("missing", "Routes missing", decimals=0),
)
_BESIDES = Column("besides", "Besides")
_ENDPOINTS = (
    Column("endpoint", "Endpoint"),
    Column("address", "Address"),
    Column("mac", "MAC"),
    Column("host", "Host"),
    Column("loopback", "Tunnel end"),
    Column("tors", "Uplinks to"),
)
_PACKET = (
    Column("at_ms", "At ms", decimals=3),
    Column("device", "Device"),
    Column("protocol", "Protocol"),
    Column("source", "From"),
    Column("destination", "To"),
    Column("size_bytes", "Bytes", decimals=0),
    Column("vni", "VNI", decimals=0),
    Column("inner_source", "Inner from"),
    Column("inner_destination", "Inner to"),
    Column("bfd_state", "BFD"),
    Column("bfd_multiplier", "Multiplier", decimals=0),
    Column("bfd_interval_s", "Interval s", decimals=3),
    Column("opcode", "Operation"),
    Column("queue_pair", "QP", decimals=0),
    Column("sequence", "PSN", decimals=0),
)
_CONTAINERS, _FABRIC = "containers", "fabric"
_LIVE, _LEFT = "live", "left over"

app = typer.Typer(
    help="The real testbed on this machine: what it can do, what is on it, and removing it.",
    no_args_is_help=True,
)


@app.command("doctor")
def doctor(form: FormatOption = Format.TABLE, no_progress: NoProgressOption = False) -> None:
    """Say what this machine can and cannot do for the testbed, and the one command that would mend it.

    Exit code 1 when something is missing without which containers, or fabrics, cannot be run.
    """
    del no_progress
    from testbed.containers import doctor as of_containers
    from testbed.fabric import doctor as fabric_doctor

    found = {_CONTAINERS: of_containers.examine(), _FABRIC: fabric_doctor.examine()}
    rows = tuple(
        {
            "pillar": pillar,
            "feature": each.feature,
            "status": each.status,
            "found": each.found,
            "meaning": each.meaning,
            "cure": each.cure or None,
            "needed": each.needed,
        }
        for pillar, findings in found.items()
        for each in findings
    )
    runs = {pillar: of_containers.can_run(findings) for pillar, findings in found.items()}
    names = {_CONTAINERS: "The container testbed", _FABRIC: "The fabric"}
    notes = [f"{names[each]} {'can' if can else 'cannot'} run here." for each, can in runs.items()]
    if not of_containers.is_root():
        notes.append("Looked at without root; with it more may be possible.")
    columns = _FINDINGS if form in (Format.TABLE, Format.MARKDOWN) else (*_FINDINGS, _NEEDED)
    emit(Result(columns, rows, notes=tuple(notes)), form)
    if not all(runs.values()):
        raise typer.Exit(_FOUND_A_PROBLEM)


@app.command("up")
def up(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[PLAN.yaml]", help="What the fabric is to be; options come first."),
    ] = None,
    topo: Annotated[
        str | None,
        typer.Option(
            "--topo",
            metavar="FILE.py:CLASS",
            help="A mininet.topo.Topo of your own: its hosts, its switches as ToRs, and its links' bw.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Of the fabric; the default is fabric.")
    ] = None,
    hosts: Annotated[
        int | None, typer.Option("--hosts", metavar="N", help="How many; the default is 2.")
    ] = None,
    tors: Annotated[
        int | None, typer.Option("--tors", metavar="N", help="How many; the default is 2.")
    ] = None,
    endpoints: Annotated[
        int | None, typer.Option("--endpoints", metavar="N", help="Of each host; the default is 1.")
    ] = None,
    bfd: Annotated[
        str | None,
        typer.Option("--bfd", metavar="MxMS", help="Multiplier and interval in ms; the default is 5x50."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="BPS", help="Of every uplink, bits per second; default: unlimited."),
    ] = None,
    stock: Annotated[
        bool | None, typer.Option("--stock", help="FRR as its package has it.", show_default=False)
    ] = None,
    fast_path: Annotated[
        bool | None,
        typer.Option(
            "--fast-path",
            help="Every host turns away from a dead uplink before routing does.",
            show_default=False,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Make a fabric of hosts and ToRs in namespaces of this machine, and wait until it has converged.

    It stays until `twinbed testbed down NAME`. Ctrl-C removes what was made by then. Needs root.
    """
    from lab.fabric.real.plan_file import plan
    from testbed.fabric.up import up as make

    options = {
        "name": name,
        "hosts": hosts,
        "tors": tors,
        "endpoints": endpoints,
        "bfd": bfd,
        "rate_bps": rate,
        "stock": stock,
        "fast_path": fast_path,
    }
    names: tuple[str, ...] = ()
    if topo is not None:
        from testbed.fabric.topo import read

        read_topo = read(topo)
        for key, value in read_topo.options().items():
            if value is not None and options[key] is not None:
                raise typer.BadParameter(f"--topo decides {key}; leave out the option for it")
            options[key] = options[key] if value is None else value
        names = (*read_topo.hosts, *read_topo.tors)
    wanted = plan(file, options)
    fabric = make(wanted, lasting=True, progress=_teller(wanted=not no_progress))
    emit(_endpoints(fabric, names), form)


@app.command("capture")
def capture(
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE",
            help="A host (h0), a ToR (t0) or an endpoint (h0e0), or one device there (h0:tor1).",
        ),
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The fabric's name.")] = "fabric",
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="Longest duration of the capture.")
    ] = 10.0,
    count: Annotated[
        int, typer.Option("--count", metavar="N", help="End after this many decoded packets.")
    ] = 100,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.pcap", help="Also write all packets to this file.")
    ] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Capture packets in a fabric that is up, and decode VXLAN, BFD and RoCEv2.

    Packets of other protocols are only counted, but --out has them too. Needs root.
    """
    from testbed.fabric.capture import capture as run_capture
    from testbed.fabric.up import load

    _teller(wanted=not no_progress)(f"capturing at {place} for up to {seconds:g} s")
    packets, others = run_capture(load(name), place, seconds=seconds, count=count, out=out)
    rows = tuple({**asdict(packet), "at_ms": packet.at_s * 1e3} for packet in packets)
    notes = (f"{len(rows)} packets decoded, {others} of other protocols.",)
    used = [column for column in _PACKET if any(row[column.key] is not None for row in rows)]
    emit(Result(tuple(used) if form in (Format.TABLE, Format.MARKDOWN) else _PACKET, rows, notes=notes), form)


@app.command("status")
def status(form: FormatOption = Format.TABLE, no_progress: NoProgressOption = False) -> None:
    """List the runs and fabrics that have anything on this machine: live ones, and what dead ones left.

    Exit code 1 when something was left, or a fabric is not whole.
    """
    del no_progress
    from testbed.containers.cgroup.drivers import detect
    from testbed.containers.leftovers import runs
    from testbed.fabric.leftovers import standing

    found, fabrics = runs(detect()), standing()
    rows = _rows(found, fabrics, look=True)
    left = any(row["state"] == _LEFT for row in rows)
    notes = ["twinbed testbed down removes what is left over."] if left else []
    broken = [str(row["run"]) for row in rows if row.get("missing")]
    if broken:
        notes.append(f"Not whole, by a fault or because it is coming up: {', '.join(broken)}.")
    emit(Result(_columns(form), rows, notes=tuple(notes)), form)
    if left or broken:
        raise typer.Exit(_FOUND_A_PROBLEM)


@app.command("down")
def down(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[FABRIC]", help="This fabric only. Default: what killed runs left."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also end the runs and fabrics that are live, with what they have.")
    ] = False,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Remove a fabric, or what runs left that were killed, and put back the limits that they changed.

    Works after kill -9. Nothing that does not carry the mark of twinbed is touched.
    """
    del no_progress
    from testbed.containers import leftovers as of_containers
    from testbed.containers.cgroup.drivers import detect
    from testbed.fabric import leftovers as fabric_leftovers

    if name is not None and everything:
        raise typer.BadParameter("give a fabric's name or --all, not both")
    removed = () if name is not None else of_containers.down(detect(), live=everything)
    fabrics = fabric_leftovers.down(name, everything=everything)
    count = len(removed) + len(fabrics)
    notes = [f"{count} removed." if count else "Nothing was left over."]
    if name is None and not everything:
        up_still = [each.name for each in fabric_leftovers.standing() if each.alive]
        notes += [f"Still up: twinbed testbed down {each} removes it." for each in up_still]
    rows = _rows(removed, fabrics, look=False)
    emit(Result(_columns(form), rows, notes=tuple(notes)), form)


def _teller(*, wanted: bool) -> Callable[[str], None]:
    """Says on standard error what is done now, to people."""
    if not (wanted and sys.stderr.isatty()):
        return lambda _: None
    return lambda what: typer.echo(f"{what} …", err=True)


def _endpoints(fabric: Fabric, names: Sequence[str] = ()) -> Result:
    """names: what the user's topology calls the hosts and the ToRs."""
    rows = tuple(
        {
            "endpoint": end.namespace,
            "address": f"{end.address}/{end.prefix_length}",
            "mac": end.mac,
            "host": host.namespace,
            "loopback": host.loopback,
            "tors": ", ".join(fabric.tors[each.tor].namespace for each in host.uplinks),
        }
        for host in fabric.hosts
        for end in host.endpoints
    )
    first = fabric.hosts[0].endpoints[0].namespace
    notes: tuple[str, ...] = (
        f"Run something there: sudo nsenter --net=/run/netns/{first} COMMAND",
        f"Remove it: sudo twinbed testbed down {fabric.plan.name}",
    )
    called = zip(names, fabric.routers, strict=bool(names))
    notes += tuple(f"{name} is {router.namespace}." for name, router in called)
    return Result(_ENDPOINTS, rows, notes=notes)


def _columns(form: Format) -> tuple[Column, ...]:
    """People are told in words what else there is."""
    people = form in (Format.TABLE, Format.MARKDOWN)
    return (*_COMMON, *((_BESIDES,) if people else _DETAILS))


def _besides(row: Record) -> str:
    """What a row's details come to."""
    words = [f"{row[each.key]} {each.title}" for each in _DETAILS if row.get(each.key)]
    return ", ".join(words).lower().replace("tors", "ToRs").replace("oci", "OCI")


def _rows(runs: Sequence[Run], fabrics: Sequence[Standing], *, look: bool) -> tuple[Record, ...]:
    """look: whether what fabrics lack is asked for."""
    rows = (*_runs(runs), *_fabrics(fabrics, look=look))
    return tuple({**row, "besides": _besides(row)} for row in rows)


def _runs(found: Sequence[Run]) -> tuple[Record, ...]:
    return tuple(
        {
            "pillar": _CONTAINERS,
            "run": each.name,
            "state": _state(alive=each.alive),
            "process": each.pid,
            "groups": each.groups,
            "processes": each.processes,
            "networks": each.networks,
            "containers": each.containers,
            "attached": each.attached,
            "folders": each.folders,
        }
        for each in found
    )


def _fabrics(found: Sequence[Standing], *, look: bool) -> tuple[Record, ...]:
    return tuple(
        {
            "pillar": _FABRIC,
            "run": each.name,
            "state": _state(alive=each.alive),
            "process": each.pid,
            "processes": each.processes,
            "networks": each.namespaces,
            "hosts": each.hosts,
            "tors": each.tors,
            "daemons": each.daemons,
            "missing": _missing(each) if look else None,
        }
        for each in found
    )


def _missing(fabric: Standing) -> int | None:
    """None of one that is left over, or is just coming up or going down."""
    from testbed.fabric.up import converged, load
    from twinbed import BackendError

    if not fabric.alive:
        return None
    try:
        return len(converged(load(fabric.name)))
    except BackendError:
        return None


def _state(*, alive: bool) -> str:
    return _LIVE if alive else _LEFT
