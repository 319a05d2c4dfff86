"""Frame and parts of an HTML page that needs no network.

For: every report that is one file (lab.runs.report, studies.experiments.present). Not for: its contents. The
parts are the macros of page.html.jinja. They escape text; markup that another part returned is inserted
unchanged. Vega draws the charts, which are images in the page.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from lab.runs.formats import shown

_CLIP = re.compile(r'(id="clip|url\(#clip)(\d+)')


@cache
def _parts() -> Any:
    environment = Environment(loader=PackageLoader("lab.runs", ""), autoescape=True)
    environment.filters["shown"] = shown
    return environment.get_template("page.html.jinja").module


def page(title: str, body: Iterable[Markup]) -> str:
    """Return the whole page. body: the parts in order; empty ones are left out."""
    return str(_parts().page(title, body))


def section(title: str, content: Markup) -> Markup:
    """Return a heading with its content below."""
    return Markup(_parts().section(title, content))


def facts_list(values: Mapping[str, Any]) -> Markup:
    """Return names with their values."""
    return Markup(_parts().facts_list(values))


def bullets(texts: Iterable[str], kind: str) -> Markup:
    """Return a list of sentences; kind: its CSS class, of which `remarks` stands out."""
    return Markup(_parts().bullets(texts, kind))


def table(header: Sequence[str], right: Sequence[bool], lines: Iterable[Sequence[str]]) -> Markup:
    """Return a table; right: for each column, whether it holds figures."""
    return Markup(_parts().table(header, right, lines))


def figure(title: str, caption: str, chart: alt.TopLevelMixin) -> Markup:
    """Return a chart as an image with its caption, with room for fonts of the reader that are wider."""
    # aria=False leaves out a description of every mark, which makes the page two thirds shorter.
    chart = chart.configure(
        font="system-ui, sans-serif",
        background="white",
        aria=False,
        padding={"left": 24, "top": 5, "right": 24, "bottom": 5},
        view=alt.ViewConfig(stroke=None),
        legend=alt.LegendConfig(columnPadding=24),
    )
    return Markup(_parts().image(title, caption, base64.b64encode(svg(chart).encode()).decode()))


def svg(chart: alt.TopLevelMixin) -> str:
    """Return a chart as SVG text; the same chart gives the same text."""
    text = vl_convert.vegalite_to_svg(chart.to_json(), allowed_base_urls=[])
    # Vega numbers clipping paths over all charts of a process. Here the numbers of each chart start at 0.
    numbers: dict[str, int] = {}
    return _CLIP.sub(lambda path: f"{path[1]}{numbers.setdefault(path[2], len(numbers))}", text)
