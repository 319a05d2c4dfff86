"""`twinbed testbed doctor|up|capture|status|down`: examines this machine, sets up and removes a testbed.

For: the verbs for containers and fabrics. Not for: verbs inside a fabric (testbed_fabric.py), examining (the
doctors), setting up (testbed.fabric.up), capturing (testbed.fabric.capture) or removing (the modules
`leftovers`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli import testbed_fabric
from lab.cli.options import Format, FormatOption, NoProgressOption, argument, emit, flag, option, usable
from lab.runs.formats import Column, Record, Result
from twinbed.text import counted, printable

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
    Column("meaning", "Purpose"),
    Column("cure", "Cure"),
)
_NEEDED = Column("needed", "Needed")
_FOR_PEOPLE = (*_FINDINGS[:3], Column("about", "Found — purpose"))
_COMMON = (
    _PILLAR,
    Column("run", "Name"),
    Column("state", "State"),
    Column("process", "Process", identifier=True),
    Column("processes", "Processes inside", decimals=0),
    Column("networks", "Links and namespaces", decimals=0),
)
_DETAILS = (
    Column("groups", "Cgroups", decimals=0),
    Column("containers", "OCI bundles", decimals=0),
    Column("attached", "Limits to restore", decimals=0),
    Column("folders", "Temporary folders", decimals=0),
    Column("hosts", "Hosts", decimals=0),
    Column("tors", "ToRs", decimals=0),
    Column("spines", "Spines", decimals=0),
    Column("daemons", "Daemons", decimals=0),
    Column("missing", "Routes missing", decimals=0),
)
_PLURAL = re.compile(r"s\b")
_BESIDES = Column("besides", "Besides")
_ENDPOINTS = (
    Column("endpoint", "Endpoint"),
    Column("vni", "VNI", identifier=True),
    Column("address", "Address"),
    Column("mac", "MAC"),
    Column("host", "Host"),
    Column("loopback", "Tunnel end"),
    Column("tors", "Uplinks to"),
)
_PACKET = (
    Column("at_ms", "At", "ms", 3), Column("device", "Device"), Column("protocol", "Protocol"),
    Column("source", "From"), Column("destination", "To"), Column("size_bytes", "Bytes", decimals=0),
    Column("vni", "VNI", identifier=True), Column("inner_source", "Inner from"),
    Column("inner_destination", "Inner to"), Column("bfd_state", "BFD"),
    Column("bfd_multiplier", "Multiplier", decimals=0), Column("bfd_interval_s", "Interval", "s", 3),
    Column("opcode", "Operation"), Column("queue_pair", "QP", identifier=True),
    Column("sequence", "PSN", identifier=True),
)  # fmt: skip
_CONTAINERS, _FABRIC = "containers", "fabric"
_LIVE, _LEFT, _UNSEEN = "live", "left over", "owner not visible"

app = typer.Typer(
    help="Examine, set up, watch and remove the real testbed on this machine.", no_args_is_help=True
)


@app.command("doctor")
def doctor(form: FormatOption = Format.TABLE, _no_progress: NoProgressOption = False) -> None:
    """Show what this machine can do for the testbed, and the commands that add what is missing.

    The exit code is 1 if containers or fabrics cannot run here.
    """
    from testbed.containers import doctor as of_containers
    from testbed.fabric import doctor as fabric_doctor

    examined = {_CONTAINERS: of_containers.examine(), _FABRIC: fabric_doctor.examine()}
    rows = tuple(
        {
            "pillar": pillar, "feature": finding.feature, "status": finding.status, "found": finding.found,
            "meaning": finding.meaning, "cure": finding.cure or None, "needed": finding.needed,
            "about": f"{finding.found} — {finding.meaning}",
        }
        for pillar, findings in examined.items()
        for finding in findings
    )  # fmt: skip
    runs = {pillar: of_containers.can_run(findings) for pillar, findings in examined.items()}
    names = {_CONTAINERS: "The container testbed", _FABRIC: "The fabric"}
    notes = [f"{names[pillar]} {'can' if can else 'cannot'} run here." for pillar, can in runs.items()]
    if not of_containers.is_root():
        notes.append("Looked at without root; with it more may be possible.")
    people = form in (Format.TABLE, Format.MARKDOWN)
    if people:
        notes += [f"{row['feature']} is {row['status']}: {row['cure']}" for row in rows if row["cure"]]
    emit(Result(_FOR_PEOPLE if people else (*_FINDINGS, _NEEDED), rows, notes=tuple(notes)), form)
    if not all(runs.values()):
        raise typer.Exit(_FOUND_A_PROBLEM)


@app.command("up")
def up(
    file: Annotated[
        Path | None, argument("[PLAN.yaml]", "File that describes the fabric; options override it.")
    ] = None,
    topo: Annotated[
        str | None,
        option(
            "FILE.py:CLASS",
            "A mininet.topo.Topo of your own: its hosts, its switches as ToRs and spines, and its links' bw.",
        ),
    ] = None,
    name: Annotated[str | None, option("NAME", "Name of the fabric. Default: fabric.")] = None,
    hosts: Annotated[int | None, option("N", "Number of hosts. Default: 2.")] = None,
    tors: Annotated[int | None, option("N", "Number of ToRs of all racks. Default: 2.")] = None,
    racks: Annotated[int | None, option("N", "Number of racks. Default: 1.")] = None,
    spines: Annotated[int | None, option("N", "Number of spines, which join racks. Default: 0.")] = None,
    endpoints: Annotated[int | None, option("N", "Endpoints of each host. Default: 1.")] = None,
    bfd: Annotated[str | None, option("MxMS", "BFD's multiplier and interval in ms. Default: 5x50.")] = None,
    rate: Annotated[
        float | None,
        option("BPS", "Rate of every uplink, bits per second. Default: unlimited.", callback=usable),
    ] = None,
    stock: Annotated[bool | None, flag("--stock", "Run FRR with its own defaults.")] = None,
    fast_path: Annotated[
        bool | None, flag("--fast-path", "Let every host leave a dead uplink before routing does.")
    ] = None,
    bfd_plane: Annotated[
        bool | None,
        flag("--bfd-plane", "Let twinbed's own process behind bfdd send BFD's packets and keep its timers."),
    ] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Make a fabric of hosts, ToRs and spines in namespaces of this machine, and wait until it has converged.

    It stays until `twinbed testbed down --name NAME`. Ctrl-C removes everything made so far. Needs root.
    """
    from lab.fabric.real.plan_file import plan
    from testbed.fabric.up import up as make

    options = {
        "name": name, "hosts": hosts, "tors": tors, "racks": racks, "spines": spines, "endpoints": endpoints,
        "bfd": bfd, "rate_bps": rate, "stock": stock, "fast_path": fast_path, "bfd_plane": bfd_plane,
    }  # fmt: skip
    names: tuple[str, ...] = ()
    if topo is not None:
        from testbed.fabric.topo import read

        read_topo = read(topo)
        for key, value in read_topo.options().items():
            if value is not None and options[key] is not None:
                raise typer.BadParameter(f"--topo decides {key}; leave out the option for it")
            options[key] = options[key] if value is None else value
        names = (*read_topo.hosts, *read_topo.tors, *read_topo.spines)
    wanted = replace(plan(file, options, topo), names=names)
    fabric = make(wanted, lasting=True, progress=_teller(wanted=not no_progress))
    emit(_endpoints(fabric), form)


@app.command("capture")
def capture(
    place: Annotated[
        str,
        argument(
            "PLACE", "A host (h0), a switch (t0, s0) or an endpoint (h0e0), or one device there (h0:tor1)."
        ),
    ],
    name: Annotated[str, option("NAME", "The fabric's name.")] = "fabric",
    seconds: Annotated[float, option("S", "Longest duration of the capture.", callback=usable)] = 10.0,
    count: Annotated[int, option("N", "End after this many decoded packets.")] = 100,
    out: Annotated[Path | None, option("FILE.pcap", "Also write all packets to this file.")] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Capture packets in a fabric that is up, and decode VXLAN, BFD and RoCEv2.

    Packets of other protocols are only counted, but --out writes them, too. Needs root.
    """
    from testbed.fabric.capture import capture as run_capture
    from testbed.fabric.up import load

    fabric = load(name)
    place = testbed_fabric.meant(fabric, place)
    testbed_fabric.tell_names(fabric, place)
    _teller(wanted=not no_progress)(f"capturing at {place} for up to {seconds:g} s")
    packets, others = run_capture(fabric, place, seconds=seconds, count=count, out=out)
    rows = tuple({**asdict(packet), "at_ms": packet.at_s * 1e3} for packet in packets)
    notes = (f"{counted(len(rows), 'packet')} decoded, {others:,} of other protocols.",)
    used = [column for column in _PACKET if any(row[column.key] is not None for row in rows)]
    emit(Result(tuple(used) if form in (Format.TABLE, Format.MARKDOWN) else _PACKET, rows, notes=notes), form)


app.command("fault", cls=testbed_fabric.Fault)(testbed_fabric.fault)
app.command("exec", context_settings={"ignore_unknown_options": True})(testbed_fabric.run_inside)
app.command("graph")(testbed_fabric.graph)


@app.command("status")
def status(form: FormatOption = Format.TABLE, _no_progress: NoProgressOption = False) -> None:
    """List the runs and fabrics on this machine: live ones, and leftovers of dead ones.

    The exit code is 1 if there are leftovers, or if a fabric lacks a part.
    """
    from testbed.containers.cgroup.drivers import detect
    from testbed.containers.leftovers import runs
    from testbed.fabric.leftovers import standing

    container_runs, fabrics = runs(detect()), standing()
    rows = _rows(container_runs, fabrics, look=True)
    left = any(row["state"] == _LEFT for row in rows)
    notes = ["twinbed testbed down removes what is left over."] if left else []
    notes += _unseen(container_runs)
    broken = [str(row["run"]) for row in rows if row.get("missing")]
    if broken:
        notes.append(f"Not whole, by a fault or because it is coming up: {', '.join(broken)}.")
    emit(Result(_columns(form), rows, notes=tuple(notes)), form)
    if left or broken:
        raise typer.Exit(_FOUND_A_PROBLEM)


@app.command("down")
def down(
    name: Annotated[
        str | None, option("NAME", "Remove this fabric only. Default: what killed runs left.")
    ] = None,
    everything: Annotated[bool, flag("--all", "Also end live runs and fabrics, and remove them.")] = False,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Remove a fabric, or leftovers of killed runs, and restore the limits that they changed.

    Works after kill -9. Only objects with twinbed's mark are touched.
    """
    from testbed.containers import leftovers as of_containers
    from testbed.containers.cgroup.drivers import detect
    from testbed.fabric import leftovers as fabric_leftovers

    if name is not None and everything:
        raise typer.BadParameter("give --name or --all, not both")
    removed = () if name is not None else of_containers.down(detect(), live=everything)
    fabrics = fabric_leftovers.down(name, everything=everything)
    count = len(removed) + len(fabrics)
    notes = [f"{count} removed." if count else "Nothing was left over."]
    if name is None:
        notes += _unseen(of_containers.runs(detect()))
    if name is None and not everything:
        for fabric in fabric_leftovers.standing():
            what = (
                "Still up"
                if fabric.alive
                else f"{fabric.name}: its lock is not in this /run, so it may be in use"
            )
            notes.append(f"{what}: twinbed testbed down --name {fabric.name} removes it.")
    rows = _rows(removed, fabrics, look=False)
    emit(Result(_columns(form), rows, notes=tuple(notes)), form)


def _teller(*, wanted: bool) -> Callable[[str], None]:
    """Return a function that prints the current step on a terminal's standard error."""
    if not (wanted and sys.stderr.isatty()):
        return lambda _: None
    return lambda what: typer.echo(f"{printable(what)} …", err=True)


def _endpoints(fabric: Fabric) -> Result:
    """Return the table of a fabric's endpoints."""
    rows: tuple[Record, ...] = tuple(
        {
            "endpoint": end.namespace,
            "vni": end.vni,
            "address": f"{end.address}/{end.prefix_length}",
            "mac": end.mac,
            "host": host.namespace,
            "loopback": host.loopback,
            "tors": ", ".join(f"t{uplink.tor}" for uplink in host.uplinks),
        }
        for host in fabric.hosts
        for end in host.endpoints
    )
    first = fabric.hosts[0].endpoints[0].namespace
    notes: tuple[str, ...] = (
        f"Run something there: sudo nsenter --net=/run/netns/{first} COMMAND",
        f"Remove it: sudo twinbed testbed down --name {fabric.plan.name}",
    )
    prefix = fabric.hosts[0].namespace.rpartition("-")[0]
    notes += tuple(f"{name} is {prefix}-{node}." for node, name in fabric.own_names.items())
    return Result(_ENDPOINTS, rows, notes=notes)


def _columns(form: Format) -> tuple[Column, ...]:
    """Return the columns. The table for people has the details as text."""
    people = form in (Format.TABLE, Format.MARKDOWN)
    return (*_COMMON, *((_BESIDES,) if people else _DETAILS))


def _besides(row: Record) -> str:
    """Return a row's details as text."""
    counts = [(row[column.key], column.title) for column in _DETAILS if row.get(column.key)]
    words = [f"{count} {_PLURAL.sub('', title, 1) if count == 1 else title}" for count, title in counts]
    if not words and row["state"] == _LEFT and not row["processes"] and not row["networks"]:
        words = ["files in /run/twinbed"]
    return ", ".join(words).lower().replace(" tor", " ToR").replace("oci", "OCI")


def _rows(runs: Sequence[Run], fabrics: Sequence[Standing], *, look: bool) -> tuple[Record, ...]:
    """Return one row per run and fabric. look: find the parts that fabrics lack."""
    rows = (*_runs(runs), *_fabrics(fabrics, look=look))
    return tuple({**row, "besides": _besides(row)} for row in rows)


def _runs(container_runs: Sequence[Run]) -> tuple[Record, ...]:
    return tuple(
        {
            "pillar": _CONTAINERS, "run": run.name, "state": _state(alive=run.alive), "process": run.pid,
            "groups": run.groups, "processes": run.processes, "networks": run.networks,
            "containers": run.containers, "attached": run.attached, "folders": run.folders,
        }
        for run in container_runs
    )  # fmt: skip


def _fabrics(fabrics: Sequence[Standing], *, look: bool) -> tuple[Record, ...]:
    return tuple(
        {
            "pillar": _FABRIC, "run": fabric.name, "state": _state(alive=fabric.alive),
            "process": fabric.pid, "processes": fabric.processes, "networks": fabric.namespaces,
            "hosts": fabric.hosts, "tors": fabric.tors, "spines": fabric.spines, "daemons": fabric.daemons,
            "missing": _missing(fabric) if look else None,
        }
        for fabric in fabrics
    )  # fmt: skip


def _unseen(container_runs: Sequence[Run]) -> list[str]:
    """Return a note for each run that may be in use, although this cannot be seen from here."""
    return [
        f"{run.name}: {counted(run.processes, 'process', 'processes')} inside, and its lock is not in this "
        "/run: it may be in use by a container. Remove it there, or end it from here with all others: "
        "twinbed testbed down --all."
        for run in container_runs
        if run.alive is None
    ]


def _missing(fabric: Standing) -> int | None:
    """Return the number of missing parts; None for a fabric that is left over, or is being set up or
    removed."""
    from testbed.fabric.up import converged, load
    from twinbed import BackendError

    if not fabric.alive:
        return None
    try:
        return len(converged(load(fabric.name)))
    except BackendError:
        return None


def _state(*, alive: bool | None) -> str:
    return {True: _LIVE, False: _LEFT, None: _UNSEEN}[alive]
