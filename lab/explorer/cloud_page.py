"""The page "Cloud": the cluster that trains a job cheapest or fastest, the reason, and the effect of a price
change.

For: this page. Not for: recommending (lab.explorer.answering), the left side (cloud_question.py) or charts
(lab.charts.cloud). An answer may take seconds, so a button starts it, and it is kept until the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st
from scipy.special import ndtri

from control.jobs import Candidates, Configuration, Objective, candidates
from control.recommender.ports import Recommendation, Request
from control.recommender.ranking import Prediction, ranked
from lab.charts import cloud as charts
from lab.charts import words
from lab.cloud.input.data_set import instance_type
from lab.cloud.input.price_list import in_use
from lab.cloud.run import recommending
from lab.cloud.run.recommending import Answer, Question
from lab.explorer import answering, cloud_question, cloud_search, downloads, html, running, sections, session
from lab.explorer.cloud_question import Choices
from lab.explorer.sections import section
from lab.runs.formats import ABSENT
from traces.catalogue.catalogue import Listing
from twinbed import TwinbedError

_KEPT, _ASKED = "cloud_answered", "cloud_asked"
_RANKING, _SEARCH = "Ranking", "Search"
_FACTORS = (
    0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0,
)  # fmt: skip
_MOST_LINES = 6
_ROWS_AT_ONCE, _RANKING_PX = 8, 480


@dataclass(frozen=True, slots=True)
class _Answered:
    """The last question with its answer, or with the problem that prevented one."""

    chosen: Choices
    question: Question
    answer: Answer | None
    problem: str = ""


def ask() -> None:
    """Have the page answer its first question when it is drawn next."""
    st.session_state[_ASKED] = True


def page() -> None:
    """Draw the page."""
    running.take_finished()
    catalogue = in_use()
    with st.sidebar:
        wanted = st.segmented_control(
            "Answer",
            [_RANKING, _SEARCH],
            default=_RANKING,
            required=True,
            key="cloud_ask",
            bind="query-params",
            help="Ranking: every cluster with its predicted time and cost. Search: clusters tried one after "
            "another, on the twin.",
        )
        chosen, below = cloud_question.choose(catalogue)
    sections.title("Cloud", "Which cluster trains my job cheapest or fastest, and why?")
    question = _question(chosen)
    if wanted == _SEARCH:
        cloud_search.page(chosen, question, below)
        return
    running.show()
    pressed = below.button(
        "Recommend", type="primary", width="stretch", disabled=question is None, key="cloud_recommend"
    )
    # A question that was answered is answered again when its address is reloaded or opened by others.
    sent = _KEPT not in st.session_state and _ASKED in st.query_params
    asked = st.session_state.pop(_ASKED, False) or sent
    if (pressed or asked) and question is not None:
        st.session_state[_KEPT] = _ask(chosen, question)
    answered: _Answered | None = st.session_state.get(_KEPT)
    if answered is not None:
        session.write_one(_ASKED, "yes")
    if answered is None:
        st.markdown(
            "Choose a job and where its cluster may be bought, and press **Recommend**: every configuration "
            "gets a time and a cost with 90 % intervals, and you see which one to take or to try next."
        )
        return
    if answered.chosen != chosen:
        st.info("The choices on the left have changed since this answer: press Recommend to ask again.")
    if answered.answer is None:
        st.error(html.markdown(answered.problem))
        return
    _show(answered.question, answered.answer)


def _question(chosen: Choices) -> Question | None:
    try:
        return cloud_question.question(chosen)
    except TwinbedError as error:
        st.error(html.markdown(str(error)))
        return None


def _ask(chosen: Choices, question: Question) -> _Answered:
    types = len(question.market.types) or recommending.MOST_TYPES
    most = types * len(question.market.workers)
    try:
        with st.spinner("Learning from past jobs and ranking…"):
            answer = answering.recommended(question, most, session.Presence())
    except TwinbedError as error:
        return _Answered(chosen, question, None, str(error))
    return _Answered(chosen, question, answer)


def _show(question: Question, answer: Answer) -> None:
    if answer.problem:
        st.warning(html.markdown(f"{answer.problem[:1].upper()}{answer.problem[1:]}."))
    frame = charts.ranking(answer.ranking)
    known = [row for row in answer.ranking if np.isfinite(row.time_s)]
    _why(answer, question.objective)
    if known:
        section("Cost and time of every candidate")
        bounds = {"deadline_h": question.deadline_s / 3600, "budget_usd": question.budget_usd}
        limited = any(map(np.isfinite, bounds.values()))
        st.altair_chart(charts.pareto(frame, **bounds), key="cloud_pareto")
        st.caption(
            "Points are medians; point at one to see its 90 % intervals. No candidate is both faster and "
            f"cheaper than one on the front.{' Dashed: deadline and budget.' if limited else ''}"
        )
    _ranking(question, frame)
    if known:
        _what_if(question, known, answer.prices)


def _why(answer: Answer, objective: Objective) -> None:
    best = answer.ranking[0]
    section("Why this one")
    st.markdown(f"**{html.markdown(str(best.configuration))}**: {html.markdown(_figures(best))}.")
    lines = [f"{best.why[:1].upper()}{best.why[1:]}."]
    if len(answer.ranking) > 1 and np.isfinite(best.time_s):
        lines.append(_beside(best, answer.ranking[1], objective))
    lines.append(answer.next_step)
    st.markdown("\n".join(f"- {html.markdown(line)}" for line in (*lines, *answer.notes)))


def _figures(row: Recommendation) -> str:
    price = f"{row.price_usd_h:.3f} $/h for the cluster"
    if not np.isfinite(row.time_s):
        return f"{price}; neither its time nor its cost is predicted"
    time, cost = row.time_interval, row.cost_interval
    dollars = _span(row.cost_usd, cost.low, cost.high)
    return f"{words.interval(row.time_s, time.low, time.high)} and {dollars} $ at {price}"


def _beside(best: Recommendation, second: Recommendation, objective: Objective) -> str:
    cost, time = _more(second.cost_usd / best.cost_usd - 1), _more(second.time_s / best.time_s - 1)
    if objective is Objective.COST:
        ranked_by, one, other = "costs", best.cost_interval, second.cost_interval
    else:
        ranked_by, one, other = "times", best.time_interval, second.time_interval
    if one.low <= other.high and other.low <= one.high:
        sure = f"the intervals of their {ranked_by} overlap, so only trials tell"
    else:
        sure = f"the intervals of their {ranked_by} do not overlap"
    return f"Next in the ranking: {second.configuration} costs {cost} and takes {time} time; {sure}."


def _more(share: float) -> str:
    return (
        "as much"
        if f"{share:.0%}" in ("0%", "-0%")
        else f"{abs(share):.0%} {'more' if share > 0 else 'less'}"
    )


def _ranking(question: Question, frame: pd.DataFrame) -> None:
    section("Ranking")
    # One unit for all rows makes them comparable. The unit is the hour if no time is known.
    size, unit = words.unit(float((3600 * frame["time_h"]).fillna(7200.0).median()))
    shown = pd.DataFrame(
        {
            "rank": frame["rank"],
            "configuration": frame["configuration"],
            f"time ({unit})": _spans(3600 / size * frame[["time_h", "time_low_h", "time_high_h"]]),
            "cost (\\$)": _spans(frame[["cost_usd", "cost_low_usd", "cost_high_usd"]]),
            "price (\\$/h)": frame["price_usd_h"].map("{:.3f}".format),
            "it is": charts.places(frame),
            "reason": frame["reason"].map(html.markdown),
        }
    )
    if len(shown) > 1 and frame["reason"].nunique() == 1:
        st.caption(html.markdown(f"The reason of every row: {frame['reason'].iloc[0]}."))
        shown = shown.drop(columns="reason")
    # Reasons are sentences: st.table wraps their lines, st.dataframe does not.
    with st.container(height=_RANKING_PX if len(shown) > _ROWS_AT_ONCE else "content", border=False):
        st.table(shown.set_index("rank"), hide_index=False)
    downloads.ranking(frame, question.job.name)


def _spans(frame: pd.DataFrame) -> list[str]:
    """Return texts of values with their intervals. Columns: the middle, the low and the high end."""
    return [_span(*row) if np.isfinite(row[0]) else ABSENT for row in frame.to_numpy(float)]


def _span(middle: float, low: float, high: float) -> str:
    middle_, *ends = map(words.significant, (middle, low, high))
    return f"{middle_} ({' to '.join(ends)})"


def _what_if(question: Question, ranking: Sequence[Recommendation], used: Mapping[str, Listing]) -> None:
    section("What if the price moves")
    among = candidates(
        {name: instance_type(listing) for name, listing in used.items()},
        {name: listing.price_usd_h for name, listing in used.items()},
        [row.configuration for row in ranking],
    )
    names = list(dict.fromkeys(row.configuration.instance for row in ranking))
    left, right = st.columns([1, 2])
    name = left.selectbox("Price of", names, key="cloud_moved")
    factor = right.select_slider(
        "times", _FACTORS, value=1.0, format_func=lambda value: f"× {value:g}", key="cloud_factor"
    )
    today = used[name].price_usd_h
    prices = MovedPrices(question, ranking, among, name, today)
    best, turns = prices.best(factor), prices.turns()
    st.markdown(
        f"At {today * factor:.3f} \\$/h each ({today:.3f} today), the best is "
        f"**{html.markdown(str(best.configuration))}**: {html.markdown(_figures(best))}."
    )
    if len(turns) == 1:
        same = "Whatever it costs between a tenth and five times as much, the best stays the same."
        if question.objective is not Objective.COST:
            same += " The ranking is by time."
        st.markdown(html.markdown(same))
        return
    spans = [f"{turns[0].configuration} below × {turns[1].factor:.2f}"]
    spans += [f"{turn.configuration} from × {turn.factor:.2f} on" for turn in turns[1:]]
    st.markdown(f"Best: {html.markdown('; '.join(spans))}.")
    ever = list(dict.fromkeys(turn.configuration for turn in turns))[:_MOST_LINES]
    st.altair_chart(charts.moved_prices(prices.costs(ever), factor), key="cloud_prices")


LOW, HIGH = 0.1, 5.0
"""Range of the factor on a price."""
_STEPS = 200
"""Steps of equal ratio in which that range is searched."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The factor on the price from which a configuration is the best."""

    factor: float
    configuration: Configuration


class MovedPrices:
    """The answer to a question at other prices of one instance type.

    question, ranking: the question and the rows of its answer, all with known times.
    among: the question's candidates at today's prices.
    instance, price_usd_h: the type whose price moves, and its price today, US$/h.
    """

    def __init__(
        self,
        question: Question,
        ranking: Sequence[Recommendation],
        among: Candidates,
        instance: str,
        price_usd_h: float,
    ) -> None:
        place = {among.configuration(row): row for row in range(len(among))}
        self._among = among.take(np.array([place[row.configuration] for row in ranking]))
        self._predicted = _predicted(ranking)
        self._question = question
        billed = self._among.count * (self._among.name == instance)
        billed = billed + self._among.servers * (self._among.server == instance)
        self._moving_usd_h = billed * price_usd_h

    def best(self, factor: float) -> Recommendation:
        """Return the best configuration at `factor` times the type's price."""
        request = Request(
            job=self._question.job,
            candidates=self._at(factor),
            objective=self._question.objective,
            budget_usd=self._question.budget_usd,
            deadline_s=self._question.deadline_s,
        )
        return ranked(request, self._predicted, 1)[0]

    def turns(self) -> list[Turn]:
        """Return where the best changes between LOW and HIGH, to within a step; the first turn is at LOW."""
        turns: list[Turn] = []
        for factor in np.geomspace(LOW, HIGH, _STEPS + 1):
            best = self.best(float(factor)).configuration
            if not turns or turns[-1].configuration != best:
                turns.append(Turn(float(factor), best))
        return turns

    def costs(self, configurations: Sequence[Configuration]) -> pd.DataFrame:
        """Return predicted costs of some configurations over the price: factor, configuration, cost_usd."""
        rows = [row for row in range(len(self._among)) if self._among.configuration(row) in configurations]
        hours = np.exp(self._predicted.log_time[rows]) / 3600
        parts = [
            pd.DataFrame(
                {
                    "factor": factor,
                    "configuration": [str(self._among.configuration(row)) for row in rows],
                    "cost_usd": hours * self._at(float(factor)).price_usd_h[rows],
                }
            )
            for factor in np.geomspace(LOW, HIGH, 41)
        ]
        return pd.concat(parts, ignore_index=True)

    def _at(self, factor: float) -> Candidates:
        return self._among.repriced(self._among.price_usd_h + (factor - 1) * self._moving_usd_h)


def _predicted(ranking: Sequence[Recommendation]) -> Prediction:
    """Return the prediction from which the ranking was made."""
    low, high = (np.array([getattr(row.time_interval, end) for row in ranking]) for end in ("low", "high"))
    coverage = np.array([row.time_interval.coverage for row in ranking])
    return Prediction(
        np.log([row.time_s for row in ranking]),
        np.log(high / low) / (2 * ndtri(0.5 + coverage / 2)),
        [row.reason for row in ranking],
    )
