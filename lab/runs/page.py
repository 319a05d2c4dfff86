"""The frame and the parts of an HTML page that explains itself and needs no network.

For: every report that is written as one file (lab.runs.report, studies.experiments.present). Not for: what is
in it.
Text is escaped here, whatever names it brings; charts are drawn by Vega here and stand in it as images.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import altair as alt
import vl_convert

from lab.runs.formats import shown

_CLIP = re.compile(r'(id="clip|url\(#clip)(\d+)')

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 62rem;
  margin: 2rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 0.6rem; }
.question, .legend, figcaption { color: #57606a; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1.2rem; }
dl.facts dt { color: #57606a; }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.28rem 0.9rem 0.28rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; border-bottom: 1px solid #8c959f; }
td { border-bottom: 1px solid #e5e8eb; overflow-wrap: break-word; max-width: 34rem; }
.right { text-align: right; white-space: nowrap; }
th.right { white-space: normal; }
ul.remarks { background: #fff8e5; border-left: 4px solid #e69f00; padding: 0.6rem 0.9rem 0.6rem 2rem; }
figure { margin: 1rem 0 1.6rem; }
figure img { max-width: 100%; height: auto; }
code { font-size: 0.9em; overflow-wrap: anywhere; }
@media print { body { margin: 0; max-width: none; } h2, figure { break-inside: avoid; } }
"""


def page(title: str, body: Iterable[str]) -> str:
    """The whole page; body: parts as made below, empty ones left out."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Names in it come from files that others wrote; nothing may load or run whatever they hold.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{escape(title)} — twinbed report</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def section(title: str, content: str) -> str:
    """A heading with what stands under it (HTML)."""
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def facts_list(values: Mapping[str, Any]) -> str:
    """Names with their values."""
    pairs = (f"<dt>{escape(key)}</dt><dd>{escape(shown(value))}</dd>" for key, value in values.items())
    return f'<dl class="facts">{"".join(pairs)}</dl>'


def bullets(texts: Iterable[str], kind: str) -> str:
    """Sentences below each other; kind: `remarks` stand out."""
    return f'<ul class="{kind}">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>'


def table(header: Sequence[str], right: Sequence[bool], lines: Iterable[Sequence[str]]) -> str:
    """A table; right: which columns are figures."""
    kinds = [' class="right"' if each else "" for each in right]

    def line(tag: str, cells: Sequence[str]) -> str:
        inside = (f"<{tag}{kind}>{escape(text)}</{tag}>" for text, kind in zip(cells, kinds, strict=True))
        return f"<tr>{''.join(inside)}</tr>"

    rows = "".join(line("td", each) for each in lines)
    return (
        f'<div class="scroll"><table><thead>{line("th", header)}</thead><tbody>{rows}</tbody></table></div>'
    )


def figure(title: str, caption: str, chart: alt.TopLevelMixin) -> str:
    """A chart as an image with its caption."""
    data = base64.b64encode(svg(chart).encode()).decode()
    return (
        f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{escape(title)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def svg(chart: alt.TopLevelMixin) -> str:
    """A chart as SVG text; the same chart gives the same text."""
    return _renumbered(vl_convert.vegalite_to_svg(chart.to_json(), allowed_base_urls=[]))


def _renumbered(svg: str) -> str:
    """Vega numbers clipping paths on and on over all charts of a process; here each chart starts at 0."""
    numbers: dict[str, int] = {}
    return _CLIP.sub(lambda found: f"{found[1]}{numbers.setdefault(found[2], len(numbers))}", svg)
