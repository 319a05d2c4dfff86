"""Searches for a cluster for the page "Cloud" in a child process: `python -m lab.explorer.search_job`.

For: one search on the twin, read and written as lab.explorer.worker does; each trial is sent when it ends.
Not for: the search itself (lab.cloud.search). A job's command never runs here: trials of real processes are
for the command line. The question is a pickle, like those of lab.explorer.answering, for the same reasons.
"""

from __future__ import annotations

import base64
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

from lab.cloud.input.price_list import in_use
from lab.cloud.input.store import Measurements
from lab.cloud.run.recommending import Question
from lab.explorer.worker import AnyRequest, Channel, carry_out

if TYPE_CHECKING:
    from lab.cloud.search.loop import Trial


@dataclass(frozen=True, slots=True)
class SearchRequest(AnyRequest):
    """The input of a search.

    pickled: the question, in base64
    trials: most trials
    cap_usd: most that they may cost together, US$; None: no bound
    asked: stands for the choices on the page
    """

    module: ClassVar[str] = "lab.explorer.search_job"
    pickled: str
    trials: int
    cap_usd: float | None = None
    asked: int = 0

    @classmethod
    def of(cls, question: Question, trials: int, cap_usd: float | None, asked: int) -> SearchRequest:
        """Return the request for a search."""
        return cls(base64.b64encode(pickle.dumps(question)).decode(), trials, cap_usd, asked)


def _work(request: SearchRequest, channel: Channel) -> dict[str, Any]:
    # Only the child loads the backends of searches, the testbed's among them; the server has no use for them.
    from lab.cloud.search import Backend
    from lab.cloud.search.backends import rehearsed
    from lab.cloud.search.loop import Limits
    from lab.cloud.search.table import record, result

    question: Question = pickle.loads(base64.b64decode(request.pickled))
    rows: list[Mapping[str, Any]] = []

    def heard(trial: Trial) -> None:
        rows.append(record(len(rows) + 1, trial))
        channel.send(row=rows[-1])
        channel.send(
            label=f"trial {len(rows)} of at most {request.trials}", fraction=len(rows) / request.trials
        )

    bounds = Limits(request.trials, cap_usd=inf if request.cap_usd is None else request.cap_usd)
    channel.send(label="learning from past jobs", fraction=0.0)
    found = rehearsed(question, in_use(), Measurements(), bounds, heard)
    told = result(found, Backend.TWIN)
    return {
        "answer": {
            "asked": request.asked,
            "by": question.objective.value,
            "deadline_h": question.deadline_s / 3600,
            "budget_usd": question.budget_usd,
            "job": question.job.name,
            "rows": rows,
            "take": str(found.best),
            "notes": told.notes,
        }
    }


if __name__ == "__main__":
    sys.exit(carry_out(SearchRequest.from_json, _work))
