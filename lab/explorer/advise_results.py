"""Shows an advice: the table with verdicts, a container's history with old and new limits, downloads.

For: the right side of the page "Advise". Not for: making an advice (lab.explorer.advise_job).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from lab.charts import drawing
from lab.charts.palette import USAGE
from lab.containers.advise import model, table
from lab.containers.advise.model import Advice, Row
from lab.explorer import html
from lab.explorer.sections import fragment, section

MOST_ROWS = 200
"""Rows of the table on the page; the downloads have all."""

VERDICTS = {
    "apply": ("rgba(0, 158, 115, 0.22)", "apply"),
    "care": ("rgba(230, 159, 0, 0.26)", "apply with care"),
    "leave": ("transparent", "leave alone"),
}
"""Colour and words of each verdict."""

FORMS = {
    "kubernetes": "Kubernetes",
    "vpa": "VPA",
    "helm": "Helm",
    "compose": "Compose",
    "docker": "Docker",
    "systemd": "systemd",
}
"""Titles of lab.containers.advise.forms.FORMS."""

_MIB = 1 << 20
_APART = ("name", "verdict", "reason")
"""Columns of an advice that the table leaves out, or shows at its ends."""
_LINES = {
    "Limit now": ("current", "limit", "#d55e00", []),
    "Limit advised": ("advised", "limit", "#1A7FC4", []),
    "Request now": ("current", "request", "#d55e00", [5, 4]),
    "Request advised": ("advised", "request", "#1A7FC4", [5, 4]),
}
"""Lines over a history: whose setting, which setting, colour, dashes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a child.

    asked: AdviceRequest.asked of its question
    advice: the advice
    histories: lab.explorer.advise_job.histories, as float32[T] and float32[rows, T]
    files: texts by form and file name
    page: the advice as one HTML page
    """

    asked: list[str | float | None]
    advice: Advice
    histories: dict[str, NDArray[np.float32]]
    files: dict[str, dict[str, str]]
    page: str

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Answer:
        """Return the answer of a child."""
        advice = Advice.model_validate(plain["advice"])
        drawn = {key: np.array(values, np.float32) for key, values in plain["histories"].items()}
        return cls(plain["asked"], advice, drawn, plain["files"], plain["page"])


def show(answer: Answer) -> None:
    """Show all parts of the answer."""
    advice = answer.advice
    result = table.result(advice)
    section("What to set")
    facts = result.facts
    st.caption(html.markdown(". ".join(f"{name}: {text}" for name, text in facts.items()) + "."))
    st.html(_table(advice))
    if len(advice.rows) > MOST_ROWS:
        st.caption(f"The first {MOST_ROWS:d} of {len(advice.rows)} rows; the downloads have all.")
    st.caption(html.markdown(result.legend))
    _container(answer)
    _downloads(answer)
    with st.expander("What was assumed"):
        st.markdown("\n".join(f"- {html.markdown(note)}" for note in advice.notes))


def _table(advice: Advice) -> str:
    result = table.result(advice)
    columns = [column for column in result.columns if column.key not in _APART]
    titles = [f"{column.title} ({column.unit})" if column.unit else column.title for column in columns]
    heads = ("Container", *titles, "Verdict")
    rows = []
    for row, record in zip(advice.rows[:MOST_ROWS], result.rows, strict=False):
        texts = [str(record[column.key]) for column in columns]
        rows.append((row.name, texts, [VERDICTS[row.verdict]]))
    return str(html.parts().verdicts(heads, rows))


@fragment
def _container(answer: Answer) -> None:
    section("History and limits")
    rows = answer.advice.rows
    pick, which = st.columns([3, 2])
    index = pick.selectbox(
        "Container", range(len(rows)), format_func=lambda place: rows[place].name, key="advice_container"
    )
    quantity = which.segmented_control(
        "Quantity", ["CPU", "Memory"], default="CPU", required=True, key="advice_quantity"
    )
    row = rows[index]
    words = VERDICTS[row.verdict][1].capitalize()
    why = f"{row.reason}{row.not_told} {row.cpu_limit_reason}"
    st.markdown(f"**{html.markdown(words)}.** {html.markdown(why)}")
    st.altair_chart(chart(answer, index, cpu=quantity == "CPU"), key="advice_chart")
    replicas = f", of the largest of {row.replicas} replicas" if row.replicas > 1 else ""
    st.caption(html.markdown(f"Grey area: use{replicas}. {_undrawn(row, cpu=quantity == 'CPU')}"))


def _undrawn(row: Row, *, cpu: bool) -> str:
    """Return which lines are not in the chart, and why."""
    values = {name: _value(row, name, cpu=cpu) for name in _LINES}
    none = [name.lower() for name, value in values.items() if value == "none"]
    unknown = [name.lower() for name, value in values.items() if value is None]
    said = [f"{', '.join(none)} (there is none)"] if none else []
    said += [f"{', '.join(unknown)} (unknown, or left as it is)"] if unknown else []
    return f"Not drawn: {'; '.join(said)}." if said else ""


def chart(answer: Answer, index: int, *, cpu: bool) -> alt.LayerChart:
    """Return one row's use over time with its requests and limits, now and as advised."""
    row, factor = answer.advice.rows[index], 1.0 if cpu else 1.0 / _MIB
    at_s, used = answer.histories["at_s"], answer.histories["cores" if cpu else "bytes"][index] * factor
    # Each value holds up to its time, so the first one begins at 0.
    frame = pd.DataFrame({"at_s": [0.0, *at_s], "used": [used[0], *used]})
    levels = {name: _level(row, name, cpu=cpu) for name in _LINES}
    there = {name: level for name, level in levels.items() if level is not None}
    top = 1.06 * max(float(used.max()), *there.values(), 1e-9)
    y = alt.Scale(domain=[0, top], nice=False)
    title = "CPU (cores)" if cpu else "Memory (MiB)"
    x = drawing.Time((0.0, float(at_s[-1])), start_s=answer.advice.made.start_s).of("at_s")
    area = (
        alt.Chart(frame, height=300)
        .mark_area(interpolate="step-before", color=USAGE, opacity=0.45)
        .encode(x=x, y=drawing.left("used", title, scale=y))
    )
    names = list(there)
    lines = (
        alt.Chart(pd.DataFrame({"what": names, "level": list(there.values())}))
        .mark_rule(strokeWidth=2)
        .encode(
            y=drawing.left("level", title, scale=y),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=names, range=[_LINES[name][2] for name in names]),
                legend=alt.Legend(orient="top", columns=2),
            ),
            strokeDash=alt.StrokeDash(
                "what:N",
                title=None,
                scale=alt.Scale(domain=names, range=[_LINES[name][3] or [1, 0] for name in names]),
            ),
            tooltip=[
                alt.Tooltip("what:N", title="line"),
                alt.Tooltip("level:Q", title=title, format=",.3~f"),
            ],
        )
    )
    return alt.LayerChart(layer=[area, lines])


def _level(row: Row, name: str, *, cpu: bool) -> float | None:
    """Return the height of a line in the chart's unit, None if there is none."""
    value = _value(row, name, cpu=cpu)
    return None if value is None or value == "none" else value * (1.0 if cpu else 1.0 / _MIB)


def _value(row: Row, name: str, *, cpu: bool) -> Any:
    """Return the setting's value as in the advice, of a row to leave only what is set now."""
    whose, which, _, _ = _LINES[name]
    if whose == "advised" and row.verdict == "leave":
        return None
    return getattr(getattr(row, whose), f"cpu_{which}_cores" if cpu else f"memory_{which}_bytes")


def _downloads(answer: Answer) -> None:
    section("Take it away")
    place = st.container(horizontal=True)
    for name, label, make, mime in (
        ("advice.json", "Advice (JSON)", lambda: model.text(answer.advice).encode(), "application/json"),
        ("advice.html", "Page (HTML)", answer.page.encode, "text/html"),
    ):
        place.download_button(
            html.markdown(label), make, name, mime, on_click="ignore", key=f"download_{name}"
        )
    for form, texts in answer.files.items():
        name, make = packed(form, texts)
        place.download_button(
            html.markdown(FORMS[form]), make, name, on_click="ignore", key=f"download_{form}"
        )
    if missing := [title for form, title in FORMS.items() if form not in answer.files]:
        st.caption(
            html.markdown(
                f"Not offered, because no row that is to be changed takes this form: {', '.join(missing)}."
            )
        )


def packed(form: str, texts: Mapping[str, str]) -> tuple[str, Any]:
    """Return a form's file name and a function that makes its bytes: the only file, or all of them zipped."""
    if len(texts) == 1:
        ((name, text),) = texts.items()
        if "/" not in name:
            return name, text.encode

    def zipped() -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in texts.items():
                archive.writestr(name, text)
        return buffer.getvalue()

    return f"{form}.zip", zipped
