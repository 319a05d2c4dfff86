"""`twinbed advise`: requests and limits for each container, rehearsed on its own history.

For: the verb's options, and the files and forms that it writes. Not for: the advice, which lab.api makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lab.cli import stdin
from lab.cli.options import (
    FillOption,
    Format,
    FormatOption,
    NoProgressOption,
    PriceOption,
    TraceFormatOption,
    TraceOptionOption,
    argument,
    emit,
    option,
    price_of,
    reader_options,
    share,
    write,
)
from lab.cli.prometheus import DEFAULTS, Asked, asking, fetched
from twinbed import ScenarioError

if TYPE_CHECKING:
    from lab.containers.advise.histories import Told


class As(StrEnum):
    """Formats that can be applied. Each has a writer in lab.containers.advise.forms."""

    KUBERNETES = "kubernetes"
    VPA = "vpa"
    HELM = "helm"
    COMPOSE = "compose"
    DOCKER = "docker"
    SYSTEMD = "systemd"


@asking
def advise(
    source: Annotated[
        list[str] | None,
        argument(
            "SOURCE",
            "Trace files, `-` for standard input, imported histories, public data sets' folders, or "
            "shipped recordings.",
            callback=stdin.traces,
        ),
    ] = None,
    prometheus: Annotated[
        str | None, option("URL", "Read the history from Prometheus, Thanos or VictoriaMetrics instead.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        option(
            "NAME",
            "Candidates, comma-separated or repeated: requests-only, limits, krr, vpa, current. "
            "Default: all.",
        ),
    ] = None,
    risk: Annotated[
        str, option("SHARE", "Largest accepted share of throttled periods, e.g. 5% or 0.05.")
    ] = "5%",
    seeds: Annotated[int, option("N", "Number of replays, each with other bursts.", min=1, max=20)] = 2,
    price: PriceOption = None,
    hosts: Annotated[
        int | None,
        option(
            "N",
            "Let the containers share N hosts in the rehearsal, placed in turn, with --host-cores. "
            "Default: a host for each.",
            show_default=False,
        ),
    ] = None,
    host_cores: Annotated[float | None, option("CORES", "Cores of each host.", show_default=False)] = None,
    out: Annotated[Path | None, option("FILE", "Write the advice here (.json), for twinbed apply.")] = None,
    as_: Annotated[
        As | None,
        option("|".join(As), "Write settings in this format, for rows whose verdict is not leave.", "--as"),
    ] = None,
    folder: Annotated[
        Path | None, option("FOLDER", "With --as: write files there instead of standard output.", "--write")
    ] = None,
    html: Annotated[Path | None, option("FILE", "Write the advice as one HTML page.")] = None,
    asked: Asked = DEFAULTS,
    trace_format: TraceFormatOption = None,
    trace_option: TraceOptionOption = None,
    fill: FillOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Advise requests and limits for each container, with the result that they would have had.

    Every candidate is replayed on the recorded history, together with the present settings. Nothing is
    applied.
    """
    from lab import api
    from lab.containers.advise import forms, model
    from lab.containers.advise.histories import of_cluster
    from lab.runs.files import check_place
    from twinbed.writing import write_bytes

    if bool(source) == bool(prometheus):
        raise ScenarioError("advise: give traces, or the address of a server with --prometheus URL")
    if source and asked != DEFAULTS:
        raise ScenarioError("--selector, --since and the other options of a server are for --prometheus")
    if prometheus and (trace_format or trace_option or fill):
        raise ScenarioError("--trace-format, --trace-option and --fill are for traces, not for --prometheus")
    if folder is not None and as_ is None:
        raise ScenarioError("--write: only with --as, which sets the format")
    check_place(out, html, folder=folder, inputs=source or ())
    shared, server = _hosts(hosts, host_cores), prometheus or ""
    policies = [text.strip() for option in policy or () for text in option.split(",")]

    def history() -> Told:
        return of_cluster(server, fetched(server, asked, progress=not no_progress))

    given: list[str | Callable[[], Told]] = [*source] if source else [history]
    advised = api.advise(
        *given,
        policies=policies or None,
        risk=share(risk, "--risk"),
        seeds=seeds,
        price=price_of(price),
        hosts=shared,
        format=trace_format,
        options=reader_options(trace_option, fill),
        progress=not no_progress,
    )
    advice = advised.answer
    if out is not None:
        model.write(advice, out)
    if html is not None:
        from lab.containers.advise.page import document

        page = document(advice, advised.histories).encode()
        write_bytes(html, page)
    if as_ is not None and folder is None:
        write(forms.joined(advice, as_.value))
        return
    if as_ is not None and folder is not None:
        forms.write(advice, as_.value, folder)
    if form is Format.JSON:
        write(model.text(advice))
    else:
        lacking = forms.left_out(advice, as_.value) if as_ is not None else ""
        whole = advised.result
        emit(replace(whole, notes=(*whole.notes, *filter(None, [lacking]))), form)


def _hosts(count: int | None, cores: float | None) -> tuple[int, float] | None:
    """Return the hosts that containers share, None if none are given. Raises ScenarioError."""
    from lab.containers.advise.rehearsal import Hosts

    if count is None and cores is None:
        return None
    if count is None or cores is None:
        raise ScenarioError("--hosts and --host-cores: give both, the number of hosts and the cores of each")
    try:
        Hosts(count, cores)
    except ScenarioError as error:
        raise ScenarioError(f"--hosts {count} --host-cores {cores:g}: {error}") from None
    return count, cores
