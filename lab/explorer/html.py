"""Writes the comparison as HTML: a card per run with the main figures, and the table of all figures.

For: what Streamlit's own table lacks: the charts' colours in its head, aligned figures, and a mark on the
best figure of a row. Not for: the choice of figures (lab.runs.compare) or markup (parts.html.jinja).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader

from lab.charts import words
from lab.charts.palette import Shown
from lab.charts.services_drawing import latency_text
from lab.containers.metrics import BY_KEY, METRICS
from lab.containers.run.savings import is_static, is_tuned, savings, signed
from lab.runs.compare import comparison
from lab.runs.formats import ABSENT
from lab.runs.formats import shown as as_text
from lab.runs.metric import Metric, censored_key
from lab.runs.store import Run


@cache
def parts() -> Any:
    """Return the macros of parts.html.jinja, which escape all text."""
    environment = Environment(loader=PackageLoader("lab.explorer", ""), autoescape=True)
    return environment.get_template("parts.html.jinja").module


@dataclass(frozen=True, slots=True)
class Card:
    """A run's card. color, title: of the run; figure, unit: the main figure; remark: text below the figure;
    below: names and further figures."""

    color: str
    title: str
    figure: str
    unit: str
    remark: str
    below: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table. name: heading; cells: text of each run, and whether it is the best; about: text
    under the pointer; section: whether a group of rows begins here."""

    name: str
    cells: Sequence[tuple[str, bool]]
    about: str = ""
    section: bool = False


_CARD = (
    ("throttled_share", "Throttled"),
    ("lateness_p99_s", "Work delayed, p99"),
    ("memory_slack_p50_mib", "Memory slack, p50"),
    ("oom_kills", "OOM kills"),
    ("restarts", "Restarts"),
    ("cost", "Cost"),
)

_SERVICE_CARD = (
    ("throttled_share", "Throttled"),
    ("cpu_slack_p50_cores", "CPU slack, p50"),
    ("memory_slack_p50_mib", "Memory slack, p50"),
    ("mean_reserved_cores", "CPU reserved"),
    ("oom_kills", "OOM kills"),
    ("restarts", "Restarts"),
    ("cost", "Cost"),
)

_SPECIAL = re.compile(r"[\\`*{}\[\]<>()#+!|~$&]|(?<!\w)_|_(?!\w)|:(?=\S)|^[-=]|(?<=^\d)\.")
"""What Markdown or Streamlit interpret: anywhere, at the edge of a word, or at the beginning of a line."""
_ADDRESS = re.compile(r"(?<=http:)(?=//)|(?<=https:)(?=//)|(?<=www)(?=\.)|(?<=@)(?=\w)", re.IGNORECASE)
"""Where an address is split. Browsers make bare addresses into links, and no escape prevents that."""
_TEAR = "\N{WORD JOINER}"
_FIRST_OF_GROUP = {"throttled_share", "oom_kills", "mean_reserved_cores"}
"""Figures that begin a new group of rows: throttling, events, reservations."""


def cards(runs: Sequence[Shown]) -> str:
    """Return one card per run: mean reserved CPU, the difference to the static run, and side effects."""
    return cards_of(
        Card(
            look.color,
            look.title,
            f"{look.run.metrics['mean_reserved_cores']:,.2f}",
            "cores reserved",
            _versus(look, runs),
            _figures(look, _CARD),
        )
        for look in runs
    )


def service_cards(runs: Sequence[Shown]) -> str:
    """Return one card per run with clients: latency, share of answers, and reserved resources."""
    return cards_of(
        Card(
            look.color,
            look.title,
            _latency(look, "latency_p99_s"),
            "latency p99",
            _answered(look.run.metrics),
            [("Latency p50", _latency(look, "latency_p50_s")), *_figures(look, _SERVICE_CARD)],
        )
        for look in runs
    )


def _latency(shown: Shown, key: str) -> str:
    return latency_text(shown.run.metrics[key], key in shown.run.censored) or ABSENT


def cards_of(cards: Iterable[Card]) -> str:
    """Return the cards side by side."""
    return str(parts().cards(cards))


def _figures(shown: Shown, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, _with_unit(shown, BY_KEY[key])) for key, name in wanted]


def _versus(shown: Shown, runs: Sequence[Shown]) -> str:
    """Return how much a run reserves compared with the static run."""
    static = (look for look in runs if is_static(look.run))
    baseline = min(static, key=lambda look: is_tuned(look.run), default=None)
    if baseline is None:
        return ""
    if baseline is shown:
        return "the others are measured against it"
    saving = savings([baseline.run, shown.run], ["", "shown"]).get("shown")
    if saving is None:
        return ""
    text = f"{signed(saving.counted)} against {baseline.title}"
    if math.isnan(saving.flat):
        return text
    refined = f"{signed(saving.low)} to {signed(saving.high)}"
    return f"{text} ({signed(saving.flat)} without refinement, {refined} with it)"


def _answered(metrics: Mapping[str, float]) -> str:
    rate, failed = metrics["throughput_rps"], metrics["failed_share"]
    return f"{rate:,.0f} answers a second, {as_text(failed, 2, percent=True)} % not answered"


def heading(shown: Shown, remark: str) -> str:
    """Return the line above one run's chart."""
    return str(parts().heading(shown, remark))


def markdown(text: str) -> str:
    """Return text as one line of Markdown that shows it literally: no link, no image, no markup. Use it for
    all text that others chose: addresses, uploads, stored runs."""
    torn = _ADDRESS.sub(_TEAR, " ".join(text.split()))
    return _SPECIAL.sub(r"\\\g<0>", torn)


def table(runs: Sequence[Shown], metrics: Sequence[Metric] = METRICS) -> str:
    """Return all figures, one row each, with a column per run. The best figure of a row is marked if they
    differ. metrics: those of the runs' kind.

    A lower bound is never marked, and prevents a mark on a figure that it may be better than.
    """
    frame = comparison([look.run for look in runs])
    rows = [
        _row(
            metric,
            frame[metric.key].tolist(),
            frame[censored_key(metric.key)].tolist() if metric.may_be_bound else [False] * len(runs),
            _currency(runs),
        )
        for metric in metrics
        if not frame[metric.key].isna().all()
    ]
    return str(parts().grid("tb-table", runs, rows))


def _row(metric: Metric, values: list[float], bounds: Sequence[bool], currency: str) -> _Row:
    metric, values = _readable(metric, values)
    texts = [_text(metric, value, bound) for value, bound in zip(values, bounds, strict=True)]
    known = [text for text, value in zip(texts, values, strict=True) if not math.isnan(value)]
    # Equal texts count as equally good, so that readers need not look for hidden digits.
    differ = len(set(known)) > 1 and metric.better != "neither"
    able = [value for value in values if not math.isnan(value)]
    best = _text(metric, (min if metric.better == "lower" else max)(able)) if differ else None
    cells = [(text, text == best) for text in texts]
    unit = _unit(metric, currency)
    heading = f"{metric.title} ({unit})" if unit else metric.title
    return _Row(heading, cells, metric.definition, metric.key in _FIRST_OF_GROUP)


def _readable(metric: Metric, values: list[float]) -> tuple[Metric, list[float]]:
    """Return the metric and its values. A duration gets the unit that suits its row."""
    if metric.unit != "s":
        return metric, values
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    size, name, decimals = words.in_rows(largest, metric.decimals)
    return replace(metric, unit=name, decimals=decimals), [value / size for value in values]


def _text(metric: Metric, value: float, bound: bool = False) -> str:
    text = as_text(value, metric.decimals, percent=_is_share(metric))
    return f"> {text}" if bound and text != ABSENT else text


def _with_unit(shown: Shown, metric: Metric) -> str:
    metric, (value,) = _readable(metric, [shown.run.metrics[metric.key]])
    unit = "" if math.isnan(value) else _unit(metric, _currency([shown]))
    return f"{as_text(value, metric.decimals, percent=_is_share(metric))} {unit}".strip()


def _is_share(metric: Metric) -> bool:
    return metric.key.endswith("_share")


def _unit(metric: Metric, currency: str) -> str:
    if metric.unit == "currency":
        return currency
    if _is_share(metric):
        return "%"
    return "" if metric.unit == "1" else metric.unit


def _currency(runs: Sequence[Shown]) -> str:
    return "/".join(dict.fromkeys(_priced_in(look.run) for look in runs))


def _priced_in(run: Run) -> str:
    """Return the currency of a run's prices, "" for a kind whose prices are all in USD."""
    return str(run.manifest["spec"].get("price", {}).get("currency", ""))


def why(runs: Sequence[Shown], changes: Sequence[pd.DataFrame]) -> str:
    """Return why a container's limit changed, one row per reason, with the number of changes under each
    run.

    changes: `lab.charts.services.limit_changes` of every run.
    """
    counts = [frame.set_index("reason") for frame in changes]
    total: dict[str, int] = {}
    for frame in counts:
        for reason, times in frame["times"].items():
            total[str(reason)] = total.get(str(reason), 0) + int(times)
    rows = [
        _Row(reason, [(_times(frame, reason), False) for frame in counts])
        for reason in sorted(total, key=lambda text: -total[text])
    ]
    return str(parts().grid("tb-why", runs, rows))


def _times(frame: pd.DataFrame, reason: str) -> str:
    if reason not in frame.index:
        return ABSENT
    row = frame.loc[reason]
    arrows = [
        f"↑ {row['raised']:,}" if row["raised"] else "",
        f"↓ {row['lowered']:,}" if row["lowered"] else "",
    ]
    return " \N{NO-BREAK SPACE} ".join(arrow for arrow in arrows if arrow)
