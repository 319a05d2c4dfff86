"""A question of the page Cloud is answered by another process, which ends in time."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lab.cloud.input.store import Measurements
from lab.cloud.run import recommending
from lab.cloud.run.recommending import Market, Question
from lab.explorer import answering, cached, cloud_question, limits
from lab.explorer.job import Queue
from tests.lab.sample_traces import usage_trace
from traces import parquet
from traces.catalogue.catalogue import load
from twinbed import BackendError, ScenarioError, TwinbedError


@pytest.fixture
def question(tmp_path, monkeypatch):
    monkeypatch.setenv("TWINBED_MEASUREMENTS", str(tmp_path / "m.duckdb"))
    return Question(cloud_question.load("images_vgg", None, None), Market("us-central1"))


def children() -> set[str]:
    """Processes of this one alone: other tests may have theirs at the same time."""
    own = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {pid for listed in own for pid in listed.read_text().split() if _answers(Path("/proc") / pid)}


def _answers(process: Path) -> bool:
    try:
        return b"lab.explorer.answering" in (process / "cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.slow
def test_the_answer_is_that_of_the_command_line_and_not_computed_here(question, monkeypatch):
    expected = recommending.answer(question, load(), Measurements(), most=5)

    def forbidden(*_arguments, **_more):
        raise AssertionError("answered in this process")

    monkeypatch.setattr(recommending, "answer", forbidden)
    answer = answering.recommended(question, 5, lambda: True)
    assert [str(row) for row in answer.ranking] == [str(row) for row in expected.ranking]
    assert answer.notes == expected.notes


@pytest.mark.slow
def test_a_users_mistake_is_the_line_of_the_command_line(question):
    with pytest.raises(ScenarioError, match="CherryPick knows a job by its own trials"):
        answering.recommended(replace(question, method="cherrypick"), 5, lambda: True)


@pytest.mark.parametrize(
    ("name", "value", "present", "said"),
    [
        ("ANSWER_S", 0.01, True, "takes longer than 0.01 s"),
        ("LEAVE_S", 0.01, False, "has left"),
        ("READ_BYTES", 1 << 20, True, "memory"),
    ],
)
def test_what_takes_too_much_or_is_not_wanted_any_more_is_ended(
    question, monkeypatch, name, value, present, said
):
    monkeypatch.setattr(limits, name, value)
    before = children()
    with pytest.raises(BackendError, match=said) as refused:
        answering.recommended(question, 5, lambda: present)
    assert "\n" not in str(refused.value)
    assert not children() - before


def test_questions_beyond_the_places_are_refused_in_one_line(question, monkeypatch):
    busy = Queue(workers=1, length=0)
    monkeypatch.setattr(answering, "_QUEUE", busy)
    first = object()
    busy.enter(first)
    assert busy.take(first, 1)
    ask = partial(answering.recommended, question, 5, lambda: True)
    with pytest.raises(BackendError, match="try again"):
        ask()
    monkeypatch.setattr(limits, "ANSWER_S", 0.01)
    busy._length = 1
    with pytest.raises(BackendError, match="ask again in a minute"):
        ask()
    assert busy.place(first) == 0


@pytest.mark.parametrize("read", [cached.recording, cached.application, cloud_question.title])
@pytest.mark.parametrize("name", ["mine.parquet", "mine.yaml"])
def test_a_choice_cannot_name_another_file_of_this_machine(read, name, tmp_path):
    parquet.write(usage_trace(periods=10), tmp_path / "mine.parquet")
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    with pytest.raises(TwinbedError, match="there is no"):
        read(str(tmp_path / name))
