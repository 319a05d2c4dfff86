"""Answers a question of the page "Cloud" in a child process: `python -m lab.explorer.answering`.

For: recommendations, whose time grows with the user's past jobs. The child has bounded memory and time, and
the number of children is bounded, so that no visitor blocks another. Not for: recommending
(lab.cloud.run.recommending). Question and answer are pickles: both ends are twinbed, and another child has
read the visitor's uploads before (lab.explorer.reading).
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from lab.cloud.input.price_list import in_use
from lab.cloud.input.store import Measurements
from lab.cloud.run import recommending
from lab.cloud.run.recommending import Answer, Question
from lab.explorer import limits
from lab.explorer.job import Queue, Watch
from twinbed import BackendError, ScenarioError, TwinbedError

_LOOK_S = 0.5
"""Interval at which the child checks whether the visitor is still there, s."""
_QUEUE = Queue(limits.shared().workers, limits.shared().waiting)


def recommended(question: Question, most: int, present: Callable[[], bool]) -> Answer:
    """Return the first `most` rows of the ranking. present: whether the visitor is connected.

    Raises ScenarioError with the text of the command line, BackendError if it takes too long, needs too much
    memory, or has no turn in time.
    """
    ticket, watch = object(), Watch(present, limits.LEAVE_S)
    _QUEUE.enter(ticket)
    try:
        if not _QUEUE.take(ticket, limits.ANSWER_S):
            raise BackendError("other visitors' questions are being answered; ask again in a minute")
        answer = _ask(pickle.dumps((limits.READ_BYTES, limits.ANSWER_S, question, most)), watch)
    finally:
        _QUEUE.leave(ticket)
    if isinstance(answer, str):
        raise ScenarioError(answer)
    return answer


def _ask(asked: bytes, watch: Watch) -> Answer | str:
    """Return the child's answer, or the user's mistake. Raises BackendError if there is none in time."""
    deadline = time.monotonic() + limits.ANSWER_S
    command = [sys.executable, "-m", "lab.explorer.answering"]
    first: bytes | None = asked
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            while True:
                try:
                    output, _ = child.communicate(first, timeout=_LOOK_S)
                    break
                except subprocess.TimeoutExpired:
                    first = None
                    if watch.left():
                        raise BackendError("the visitor has left") from None
                    if time.monotonic() > deadline:
                        raise BackendError(
                            f"the answer takes longer than {limits.ANSWER_S:g} s; choose fewer types or "
                            "workers, or use `twinbed recommend`"
                        ) from None
        finally:
            child.kill()
    if child.returncode or not output:
        raise BackendError(
            f"the answer needs more than {limits.READ_BYTES / (1 << 30):g} GiB of memory, or fails; choose "
            "fewer types or workers, or use `twinbed recommend`"
        )
    answer: Answer | str = pickle.loads(output)
    return answer


def main() -> int:
    """Answer the question on standard input. Returns 0 if there is an answer or a user's mistake."""
    most_bytes, most_s, question, most = pickle.load(sys.stdin.buffer)
    # An orphan ends too, because its explorer cannot end it any more.
    signal.alarm(round(2 * most_s))
    limits.bound_memory(most_bytes)
    with os.fdopen(os.dup(1), "wb") as out:
        # Output that a library prints is no part of the answer.
        os.dup2(2, 1)
        answer: Answer | str
        try:
            answer = recommending.answer(question, in_use(), Measurements(), most=most)
        except BackendError:
            # The machine is short of memory, which is no mistake of the user's.
            return 1
        except TwinbedError as error:
            answer = str(error)
        pickle.dump(answer, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
