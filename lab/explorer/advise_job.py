"""Makes an advice for the page "Advise" in a child process: `python -m lab.explorer.advise_job`.

For: one request, read and written as lab.explorer.worker does; the answer has all that the page shows and
offers. Not for: the advice itself (lab.containers.advise), or starting the child (lab.explorer.job).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from control.allocator.model import Floats
from lab.ask.times import duration_s
from lab.connect.http import Access
from lab.connect.prometheus import HistoryQuestion, fetch
from lab.containers.advise import forms
from lab.containers.advise.advising import CHECKING, SEARCHING, Wanted, advise
from lab.containers.advise.histories import Told, of_cluster, read
from lab.containers.advise.model import Advice
from lab.containers.advise.page import document
from lab.containers.advise.rehearsal import Hosts
from lab.containers.calibrate.values import load_calibration
from lab.explorer.worker import AnyRequest, Channel, carry_out
from twinbed import ScenarioError, TraceError

_ANSWER_BYTES = 8 << 20
"""Longest answer, bytes: some thousand containers with their histories. A session keeps one."""

_POINTS, _ALL_POINTS = 400, 200_000
"""Most points of one row's history, and of all."""

_SIGNIFICANT = 5
"""Digits of a point: more than a chart shows."""


@dataclass(frozen=True, slots=True)
class AdviceRequest(AnyRequest):
    """The input of an advice.

    source: a shipped recording's name or a file in `folder`, "" for a server.
    url, selector, since, step: of a Prometheus, in the words of the command line.
    risk: largest accepted share of throttled periods.
    hosts, host_cores: number of the hosts that containers share, and cores of each; None: one for each.
    """

    module: ClassVar[str] = "lab.explorer.advise_job"
    source: str = ""
    url: str = ""
    selector: str = ""
    since: str = "7d"
    step: str = "30s"
    risk: float = 0.05
    hosts: int | None = None
    host_cores: float | None = None

    @property
    def asked(self) -> list[str | float | None]:
        """What an answer depends on."""
        how = [self.risk, self.hosts, self.host_cores]
        return [self.source, self.url, self.selector, self.since, self.step, *how]


def _work(request: AdviceRequest, channel: Channel) -> dict[str, Any]:
    count, cores = request.hosts, request.host_cores
    wanted = Wanted(risk=request.risk, hosts=Hosts(count, cores) if count and cores else None)
    steps = ["reading", CHECKING, SEARCHING, *dict.fromkeys((*wanted.policies, "current"))]

    def progress(label: str, done: float) -> None:
        channel.reached(label, (steps.index(label) + done) / len(steps))

    told = _history(request, progress)
    advice = advise([told], wanted, load_calibration().machine(), progress)
    answer = {
        "asked": request.asked,
        "advice": advice.model_dump(mode="json"),
        "histories": histories(told),
        "files": files(advice),
        "page": document(advice, [told]),
    }
    if len(json.dumps(answer)) > _ANSWER_BYTES:
        raise TraceError("too many containers for this page; select fewer, or use twinbed advise")
    return {"answer": answer}


def _history(request: AdviceRequest, progress: Any) -> Told:
    progress("reading", 0.0)
    if not request.url:
        return read(request.source)
    step_s = duration_s(request.step, "step")
    end_s = time.time() - step_s
    begin_s = end_s - duration_s(request.since, "how far back")
    question = HistoryQuestion(request.selector, begin_s, end_s, step_s)
    history = fetch(Access(request.url), question, lambda done: progress("reading", done))
    return of_cluster(request.url, history)


def histories(told: Told) -> dict[str, Any]:
    """Return the use of each row's largest replica: the maxima of some hundred stretches.

    Keys: at_s, ends of the stretches from the history's begin; cores and bytes, lists by row.
    """
    usage = told.usage
    length, rows = usage.cores.shape[1], usage.rows
    most = max(2, min(_POINTS, _ALL_POINTS // rows))
    starts = np.arange(0, length, -(-length // most))
    first = np.searchsorted(usage.row, np.arange(rows))

    def thin(values: Floats) -> list[list[float]]:
        by_row = np.maximum.reduceat(np.maximum.reduceat(values, starts, axis=1), first, axis=0)
        return [[float(f"{value:.{_SIGNIFICANT}g}") for value in line] for line in by_row.tolist()]

    ends = np.append(starts[1:], length) * usage.interval_s
    return {"at_s": ends.tolist(), "cores": thin(usage.cores), "bytes": thin(usage.memory_bytes)}


def files(advice: Advice) -> dict[str, dict[str, str]]:
    """Return the texts of every form that the advice can take, by form and file name."""
    made = {}
    for form in forms.FORMS:
        try:
            made[form] = forms.texts(advice, form)
        except ScenarioError:
            # The page names the forms that cannot express this advice.
            continue
    return made


if __name__ == "__main__":
    sys.exit(carry_out(AdviceRequest.from_json, _work))
