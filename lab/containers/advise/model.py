"""The advice file: the output of `twinbed advise` and the input of `twinbed apply`.

For: the data of an advice, reading and writing it. Not for: making one (lab.containers.advise.advising), the
forms that Kubernetes, Helm, Docker and systemd take (lab.containers.advise.forms), nor applying it
(lab.containers.apply).

One row is one container of one workload: all replicas of a workload share its limits. As in KRR, "no opinion"
and "no limit" differ: a quantity that is null stays unchanged, and a limit that is "none" is removed.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lab.ask import guard
from lab.ask.problems import validated
from lab.ask.section import Section
from twinbed import ScenarioError
from twinbed.files import MIB, read_user_text
from twinbed.writing import write_bytes

VERSION = 1
"""Version of the file's form. A reader refuses every other one."""

MOST_BYTES = 64 * MIB
"""Largest advice file: some 50,000 containers."""

Verdict = Literal["apply", "care", "leave"]
"""apply: the rehearsal was better or equal in every respect. care: it was better, but a figure is close to
its bound, or the history is short. leave: no candidate was better than the present settings, or the advice
hardly keeps up."""

Cores = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]


class Setting(Section):
    """Requests and limits of a container. null: no opinion, or unknown; "none": no limit."""

    cpu_request_cores: Cores | None = Field(default=None, description="CPU request, cores.")
    cpu_limit_cores: Cores | Literal["none"] | None = Field(default=None, description="CPU limit, cores.")
    memory_request_bytes: Bytes | None = Field(default=None, description="Memory request, bytes.")
    memory_limit_bytes: Bytes | Literal["none"] | None = None
    """Memory limit, bytes."""


class Interval(Section):
    """A figure over the seeds of a rehearsal."""

    mean: float = Field(description="Mean over the seeds.")
    low: float = Field(description="Smallest of the seeds.")
    high: float = Field(description="Largest of the seeds.")


class Outcome(Section):
    """Outcome of a setting for a container, replayed on its history by the twin.

    null: undefined, e.g. throttling without a CPU limit on a host that is never full, or memory of a trace
    that has none.
    """

    throttled_share: Interval | None = Field(description="Share of CFS periods that were throttled, 0 to 1.")
    oom_events: Interval | None = Field(description="Times that the container met its memory limit.")
    restarts: Interval | None = Field(description="Restarts of the container.")
    late_share: Interval | None
    """Share of the CPU work done later than demanded, 0 to 1: on the rehearsal's hosts, or without them on a
    host that is full, where a container gets its request and no more."""
    cpu_slack_cores: Interval | None = Field(description="Reserved and unused CPU, mean over time, cores.")
    memory_slack_bytes: Interval | None = Field(description="Reserved and unused memory, mean, bytes.")
    money_per_day: Interval | None = Field(description="Price of what is reserved, per day, all replicas.")


class Row(Section):
    """One container of one workload."""

    name: str = Field(min_length=1, description="Name in the advice, namespace/workload/container if known.")
    namespace: str = Field(default="", description='Namespace, or "" outside Kubernetes.')
    kind: str = Field(default="", description="Kind of the workload, e.g. Deployment.")
    workload: str = Field(default="", description="Name of the workload.")
    container: str = Field(default="", description="Name of the container in its pod.")
    is_init: bool = Field(default=False, description="Whether it is one of the pod's init containers.")
    members: list[str] = Field(description="Containers of the trace that are its replicas.")
    replicas: int = Field(ge=1, description="Largest number of replicas that ran at a time.")
    current: Setting = Field(description="What is set now, as far as known.")
    advised: Setting = Field(description="What to set.")
    policy: str = Field(description="Candidate that the advice is from.")
    verdict: Verdict
    reason: str = Field(description="Why, one sentence.")
    unknown: list[str] = Field(default_factory=list, description="Facts that the history lacks.")
    cpu_limit_reason: str = Field(default="", description="Why this CPU limit, or none, one sentence.")
    before: Outcome | None = Field(description="Replay of the present settings; null if they are unknown.")
    after: Outcome = Field(description="Replay of the advice.")
    peak_cores: float = Field(ge=0, description="Largest CPU use of an interval of the history, cores.")
    peak_bytes: float = Field(ge=0, description="Largest memory of the history, bytes.")

    @property
    def meant(self) -> Setting:
        """The settings once the advice is followed: the present ones if the verdict is leave."""
        return self.current if self.verdict == "leave" else self.advised

    @property
    def expected(self) -> Outcome | None:
        """Replay of `meant`; null if that is unknown."""
        return self.before if self.verdict == "leave" else self.after

    @property
    def not_told(self) -> str:
        """The facts that the history lacks, as a sentence with a space before it; "" if it lacks none."""
        return f" The history does not show: {', '.join(self.unknown)}." if self.unknown else ""


class Made(Section):
    """The input and the method of an advice."""

    at: str = Field(description="Moment at which the advice was made, ISO 8601 in UTC.")
    by: str = Field(description="Version of twinbed.")
    source: str = Field(description="Trace or server that the history is from.")
    sha256: str = Field(description="SHA-256 of the history's content.")
    start_s: float = Field(description="Start of the history, s since 1970 or any epoch.")
    duration_s: float = Field(gt=0, description="Length of the history, s.")
    interval_s: float = Field(gt=0, description="Length of an interval of the history, s.")
    seeds: list[int] = Field(description="Seeds of the rehearsal.")
    candidates: list[str] = Field(description="Candidates that were rehearsed.")
    risk: float = Field(ge=0, le=1, description="Largest accepted share of throttled periods.")
    currency: str = Field(description="Currency of all prices.")
    hosts: int | None = Field(default=None, ge=1)
    """Hosts that the containers share in the rehearsal; null: one for each."""
    host_cores: Cores | None = Field(default=None, description="Cores of each of those hosts.")


class Advice(Section):
    """An advice: its rows, and the input from which they were made."""

    version: Literal[1] = Field(description="Version of this form.")
    made: Made
    rows: list[Row] = Field(min_length=1)
    notes: list[str] = Field(default_factory=list, description="What was assumed, one sentence each.")


def read(path: Path) -> Advice:
    """Return the advice in a file. Raises ScenarioError that names the file and the key."""
    cure = f"make an advice with twinbed advise --out {path.with_suffix('.json').name}"
    try:
        data = guard.parse_json(read_user_text(path, MOST_BYTES), str(path))
    except ScenarioError as error:
        raise ScenarioError(f"{error}; {cure}") from None
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise ScenarioError(f"{path}: not an advice of version {VERSION}; {cure}")
    advice = validated(Advice, data, str(path))
    counts = Counter(row.name for row in advice.rows)
    name, count = counts.most_common(1)[0]
    if count > 1:
        raise ScenarioError(f"{path}: rows: {name!r} appears {count} times; {cure}")
    return advice


def text(advice: Advice) -> str:
    """Return the advice as JSON, which `read` reads back."""
    return json.dumps(advice.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"


def write(advice: Advice, path: Path) -> None:
    """Write the advice, whole or not at all. Raises BackendError that names the file."""
    write_bytes(path, text(advice).encode())
