"""Results of the Python API: notebooks show them as tables, and they have data frames and charts.

For: lab.api. Not for: asking, running or storing. Heavy packages are imported when they are used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from lab.containers.advise.histories import Told
    from lab.runs.formats import Result
    from lab.runs.store import Run
    from lab.sweep.sweep import Swept


class Shown(ABC):
    """A result that notebooks show as a table. `result` has its rows, columns, facts and notes."""

    @property
    @abstractmethod
    def result(self) -> Result:
        """The table as the command line prints it."""

    def __repr__(self) -> str:
        from lab.runs.formats import table

        return table(self.result)

    def _repr_html_(self) -> str:
        """Return the table for notebooks: titles with units, facts above, notes below."""
        from html import escape

        from lab.runs.formats import grid

        shown = self.result
        header, numeric, lines = grid(shown)
        head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
        side = ["right" if number else "left" for number in numeric]
        rows = "".join(
            "<tr>"
            + "".join(
                f'<td style="text-align:{place}">{escape(cell)}</td>'
                for place, cell in zip(side, line, strict=True)
            )
            + "</tr>"
            for line in lines
        )
        facts = "".join(f"<div>{escape(f'{key}: {value}')}</div>" for key, value in shown.facts.items())
        notes = "".join(f"<div>· {escape(note)}</div>" for note in (shown.legend, *shown.notes) if note)
        return f"{facts}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


@dataclass(frozen=True, repr=False)
class Runs(Shown, Sequence["Run"]):
    """Stored runs and their comparison. It is a sequence of the runs."""

    runs: tuple[Run, ...]

    @property
    def result(self) -> Result:
        """The comparison as the command line prints it: means over seeds, only metrics that apply."""
        from lab.runs.compare import as_result

        return as_result(self.runs)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per run: label, run, name, policy, seed, currency, and every metric.

        docs/reference/metrics.md has their units.
        """
        from lab.runs.compare import comparison

        return comparison(self.runs)

    @property
    def means(self) -> pd.DataFrame:
        """One row per label: every metric's mean over the seeds, and KEY_ci95, half its 95 % interval."""
        from lab.runs.compare import over_seeds

        return over_seeds(self.frame)

    def charts(self) -> dict[str, alt.TopLevelMixin]:
        """Return the charts of a report about these runs, by title."""
        from lab.runs.compare import kind_of

        return {figure.title: figure.chart for figure in kind_of(self.runs).charts(self.runs)}

    def __getitem__(self, index: Any) -> Any:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)


@dataclass(frozen=True, repr=False)
class Sweep(Shown):
    """A finished sweep. swept: its plan, its frame and its failures."""

    swept: Swept

    @property
    def result(self) -> Result:
        """The table of means of the first metrics that differ between points."""
        from lab.sweep.result import chosen, result

        return result(self.swept, chosen(self.swept, []))

    @property
    def frame(self) -> pd.DataFrame:
        """One row per run: the keys that vary, policy, seed and every metric."""
        return self.swept.frame

    def charts(self) -> dict[str, alt.TopLevelMixin]:
        """Return the charts of the metrics in the table, by title: lines over a key, heat maps, a front."""
        from lab.sweep.page import figures
        from lab.sweep.result import chosen

        drawn = figures(self.swept.frame, self.swept.plan.keys, chosen(self.swept, []))
        return {title: figure.chart for title, figure in drawn}


@dataclass(frozen=True, repr=False)
class Table(Shown):
    """A table with the object that it was made from.

    answer: an Advice (advise), a Recording (record), or an Answer, a plan or trials (recommend).
    """

    answer: Any
    made: Result

    @property
    def result(self) -> Result:
        """The table."""
        return self.made

    @property
    def has_answer(self) -> bool:
        """Whether the question has an answer. It has none if no cluster keeps the bounds, or if the plan is
        impossible."""
        if self.answer is self.made:
            return bool(self.made.rows)
        return not getattr(self.answer, "problem", "")

    @property
    def frame(self) -> pd.DataFrame:
        """One row per row of the table; the keys end in units."""
        import pandas as pd

        return pd.DataFrame(list(self.made.rows))


@dataclass(frozen=True, repr=False)
class Ranking(Table):
    """Ranked clusters. deadline_s, budget_usd: the limits of the question, infinite for none."""

    deadline_s: float
    budget_usd: float

    def charts(self) -> dict[str, alt.TopLevelMixin]:
        """Return the chart of every candidate by time and cost, by title; empty if no time is predicted."""
        from lab.charts.cloud import pareto, ranking

        if not self.answer.sized:
            return {}
        frame = ranking(self.answer.ranking)
        drawn = pareto(frame, deadline_h=self.deadline_s / 3600, budget_usd=self.budget_usd)
        return {"Time and cost": drawn}


@dataclass(frozen=True, repr=False)
class Advised(Table):
    """An advice. histories: the histories that it was made from."""

    histories: tuple[Told, ...]
