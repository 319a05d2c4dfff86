"""Load a trace from a path, a folder of a public data set, or the name of a shipped recording.

For: recognising a format and calling its reader. Not for: reading (traces/readers, traces/parquet).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError, validate_call

from traces import gzipped, parquet, parquet_file
from traces.prometheus import kept
from traces.prometheus.history import ClusterHistory, selected
from traces.prometheus.in_force import Entries
from traces.prometheus.workloads import Owner
from traces.readers import (
    bitbrains,
    deathstarbench,
    google_jobs,
    grafana_csv,
    job_logs,
    nezha,
    openmetrics,
    plain_csv,
    query_range,
    sockshop,
    surf,
    table,
)
from traces.schema import LARGEST, UsageTrace, validate
from twinbed import TraceError
from twinbed.own import find
from twinbed.text import continued

RECORDED = Path(__file__).parent / "recorded"
"""The recordings that ship with twinbed."""

_HEAD_BYTES = 512
"""Number of bytes at a text's beginning by which its format is recognised."""

_MANY_CORES = 200.0
"""CPU use of a container above which its unit is doubted, cores: few hosts have more, and a fifth of a core
in millicores is a common use."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A trace format and how to read it.

    name: name that users write
    description: one line about the format
    read: function: path and keyword options → trace. `load` converts text to the options' types.
    recognises: function: column names → whether a file with them has this format
    is_parquet: whether files of this format are Parquet; False: text; None: either
    begins: function: first bytes of a file → whether it has this format; None for tables
    files: names of a public data set's files, in the order in which a folder is searched for them
    """

    name: str
    description: str
    read: Callable[..., UsageTrace | ClusterHistory]
    recognises: Callable[[list[str]], bool]
    is_parquet: bool | None = False
    begins: Callable[[bytes], bool] | None = None
    files: tuple[str, ...] = ()


def _has(*wanted: Sequence[str]) -> Callable[[list[str]], bool]:
    return lambda columns: any(set(names) <= set(columns) for names in wanted)


_READERS = (
    Reader(
        "recording",
        "twinbed's own Parquet (recordings and converted traces)",
        parquet.read,
        _has(),
        is_parquet=True,
    ),
    *(
        Reader(name, description, reader.read, _has(reader.COLUMNS), files=reader.FILES)
        for name, description, reader in (
            ("sockshop", "Sock Shop containers every 1 s, with injected faults (RCD)", sockshop),
            ("deathstarbench", "DeathStarBench social network pods every 10 s", deathstarbench),
            ("nezha", "Online Boutique and TrainTicket pods every minute (Nezha)", nezha),
            (
                "google_jobs",
                "Google 2011 cluster jobs every 5 minutes, percent of a reservation",
                google_jobs,
            ),
        )
    ),
    Reader(
        "bitbrains",
        "Bitbrains business VMs every 5 minutes, one month",
        bitbrains.read,
        _has(*bitbrains.COLUMNS),
        files=bitbrains.FILES,
    ),
    Reader(
        "surf",
        "SURF HPC batch jobs every 30 s, one day of a week",
        surf.read,
        lambda columns: set(columns) == set(surf.COLUMNS),
        is_parquet=True,
        files=surf.FILES,
    ),
    Reader(
        "query_range",
        "saved answers of Prometheus' query_range (docs/how-to/import-from-prometheus.md)",
        query_range.history,
        _has(),
        begins=query_range.recognises,
    ),
    Reader(
        "openmetrics",
        "OpenMetrics or Prometheus text with time stamps",
        openmetrics.history,
        _has(),
        begins=openmetrics.recognises,
    ),
    Reader(
        "grafana_csv",
        "a panel's CSV from Grafana, series joined by time",
        grafana_csv.read,
        grafana_csv.recognises,
    ),
    Reader(
        "csv",
        "a table of your own, CSV or Parquet, long or wide (docs/how-to/bring-your-own-trace.md)",
        plain_csv.read,
        lambda columns: plain_csv.is_long(columns) or plain_csv.is_wide(columns),
        is_parquet=None,
    ),
)

FORMATS: Mapping[str, Reader] = {reader.name: reader for reader in _READERS}
"""Name → format, in the order in which a file is offered to them."""


def shipped() -> list[str]:
    """Return the names of the shipped recordings, sorted."""
    return sorted(path.stem for path in RECORDED.glob("*.parquet"))


SELECTION = ("containers", "max_containers", "start_s", "end_s")
"""Options that select a part of any trace."""


def load(
    source: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the user's word for it
    **options: object,
) -> UsageTrace:
    """Return the validated trace at `source`: a file, a public data set's folder, or a shipped recording.

    format: key of FORMATS, or the user's own reader (twinbed.own); None: recognised by the content
    options: options of the reader, and those of SELECTION; text is converted to their types
    containers, start_s, end_s: as in `select`; text has commas between names
    max_containers: largest number of containers; the first ones are kept

    Every failure is a TraceError of one line.
    """
    path, reader = _chosen(source, format)
    return _loaded(path, reader, options).trace


def load_history(
    source: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the user's word for it
    **options: object,
) -> ClusterHistory:
    """Return the trace at `source` and the further facts that the source has. Arguments are as for `load`.

    If the format has usage only, each container counts as a workload of its own. Files beside an imported
    history are read, too. Raises TraceError.
    """
    path, reader = _chosen(source, format)
    if reader.read is parquet.read and kept.beside(path).exists():
        reader = replace(reader, read=kept.read)
    return _loaded(path, reader, options)


def _loaded(path: Path, reader: Reader, options: dict[str, object]) -> ClusterHistory:
    """Return the history that the reader makes of a file, checked, and reduced to the selection."""
    selection = {key: options.pop(key) for key in SELECTION if key in options}
    made: UsageTrace | ClusterHistory = _called(
        reader.read, f"{path}", f" of format {reader.name}", path, options
    )
    if isinstance(made, UsageTrace):
        owners = tuple(Owner("", "", name, "", name) for name in made.containers)
        made = ClusterHistory(made, owners, _recorded_limits(made, path))
    made = replace(made, trace=_checked(made.trace, path))
    try:
        history: ClusterHistory = _called(_selected, f"{path}", "", made, selection)
    except TraceError as error:
        raise TraceError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    return history


def _recorded_limits(trace: UsageTrace, path: Path) -> dict[str, Entries]:
    """Return the limits under which `twinbed record` ran the containers, which are in its traces' metadata;
    0: none. Other traces have no such facts. Raises TraceError."""
    if "sampling_cores" not in trace.metadata:
        return {}
    facts = {}
    for fact, key in (("cpu_limit_cores", "cpu_quota_cores"), ("memory_limit_bytes", "memory_limit_bytes")):
        limits = np.zeros(len(trace.containers))
        for column, name in enumerate(trace.containers):
            text = trace.metadata.get(f"{key}.{name}", "0")
            try:
                limits[column] = float(text)
            except ValueError:
                limits[column] = np.nan
            if not 0 <= limits[column] <= LARGEST:
                raise TraceError(f"{path}: its metadata: {key}.{name}: {text!r} is no limit; record it again")
        everyone = np.arange(len(limits), dtype=np.int32)
        facts[fact] = Entries(np.zeros_like(everyone), everyone, limits)
    return facts


def _selected(
    history: ClusterHistory,
    containers: Sequence[str] | str | None = None,
    max_containers: int | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
) -> ClusterHistory:
    if isinstance(containers, str):
        containers = [name.strip() for name in containers.split(",")]
    if max_containers is not None and containers is None:
        if max_containers < 1:
            raise TraceError(f"max_containers is {max_containers}, expected at least 1")
        containers = history.trace.containers[:max_containers]
    return selected(history, containers, start_s, end_s)


def _checked(trace: UsageTrace, path: Path) -> UsageTrace:
    """Return the valid trace, with a note if its CPU is probably in millicores. Raise TraceError."""
    validate(trace, str(path))
    most = trace.cpu_cores.max(initial=0.0)
    if most <= _MANY_CORES:
        return trace
    name = trace.containers[int(trace.cpu_cores.max(axis=0).argmax())]
    note = (
        f"Container {name} uses up to {most:.4g} cores, which few hosts have. If these are millicores, name "
        "the column cpu_millicores (a wide table: NAME.cpu_millicores; Grafana: quantity=cpu_millicores)."
    )
    return replace(trace, notes=(*trace.notes, note))


def _chosen(source: str | Path, name: str | None) -> tuple[Path, Reader]:
    """Return the file that is read, and its reader."""
    path = _locate(source)
    if name is None:
        return _recognise(path)
    reader = _format(name)
    return _file_of(reader, path), reader


def _locate(source: str | Path) -> Path:
    path = Path(source)
    if path.exists():
        return path
    if isinstance(source, str) and source in shipped():
        return RECORDED / f"{source}.parquet"
    raise TraceError(f"{source}: no such file or folder, and no shipped recording ({', '.join(shipped())})")


def _recognise(path: Path) -> tuple[Path, Reader]:
    if path.is_dir():
        for reader in _READERS:
            if any((path / name).exists() for name in reader.files):
                return _file_of(reader, path), reader
        raise TraceError(f"{path}: a folder without a known trace; give the file, or one of {_formats()}")
    is_parquet = parquet_file.is_parquet(path)
    if is_parquet and parquet.is_own(path):
        return path, FORMATS["recording"]
    head = gzipped.head(path, _HEAD_BYTES)
    for reader in _READERS:
        if reader.begins is not None and reader.begins(head):
            return path, reader
    if job_logs.begins_log(head):
        raise TraceError(
            f"{path}: a log of jobs, not a trace; a scenario takes it as cluster.log "
            "(docs/how-to/ask-about-a-cluster.md)"
        )
    columns = table.header(path)
    for reader in _READERS:
        if reader.is_parquet in (is_parquet, None) and reader.recognises(columns):
            return path, reader
    # This reader's error says best what is missing.
    return path, FORMATS["csv"]


def _file_of(reader: Reader, path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in reader.files:
        if (path / name).exists():
            return path / name
    raise TraceError(f"{path}: no file of format {reader.name} in this folder ({', '.join(reader.files)})")


def _format(name: str) -> Reader:
    if name not in FORMATS and (mine := find(name, "readers")) is not None:
        reader = mine.make()
        return Reader(mine.label, reader.description, reader.read, _has())
    if name not in FORMATS:
        close = get_close_matches(name, FORMATS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {_formats()}"
        raise TraceError(f"no trace format {name!r}; {hint}")
    return FORMATS[name]


def _formats() -> str:
    return ", ".join(FORMATS)


def _called(
    function: Callable[..., Any], whose: str, of: str, data: object, options: dict[str, object]
) -> Any:
    """Return function(data, **options), with text converted to the options' types. Raises TraceError."""
    try:
        return validate_call(config={"arbitrary_types_allowed": True})(function)(data, **options)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        problem = continued(first["msg"])
        if first["type"] == "unexpected_keyword_argument":
            known = [*signature(function).parameters][1:]
            problem = f"unknown; there are {', '.join((*known, *SELECTION))}"
        raise TraceError(f"{whose}: option {key!r}{of}: {problem}") from None
