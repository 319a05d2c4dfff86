"""The options with which verbs read a cluster's history from a server, and the reading itself.

For: `traces import prometheus` and `advise --prometheus`. Not for: asking (lab.connect.prometheus).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import usable

if TYPE_CHECKING:
    from traces.prometheus.history import ClusterHistory

SelectorOption = Annotated[
    str,
    typer.Option(
        "--selector",
        metavar="MATCHERS",
        help='Which containers, as in PromQL: namespace="shop",pod=~"web-.*". Default: all.',
        show_default=False,
    ),
]
SinceOption = Annotated[
    str, typer.Option("--since", metavar="TIME", help="How far back to begin: 7d, 12h, 90m.")
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="MOMENT",
        help="End of the history: 2024-05-01T10:00:00Z or seconds since 1970. Default: one step ago.",
    ),
]
StepOption = Annotated[
    str, typer.Option("--step", metavar="TIME", help="Length of an interval; not below the scrape interval.")
]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="File with a bearer token.")
]
TokenEnvOption = Annotated[
    str | None, typer.Option("--token-env", metavar="NAME", help="Environment variable with a bearer token.")
]
UserOption = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="User, for basic authentication.")
]
PasswordFileOption = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="File with the user's password.")
]
CaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-file", metavar="FILE", help="Certificates (PEM) that sign the server's. Default: the system's."
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="S",
        min=0.1,
        callback=usable,
        help="Longest wait for the next bytes of an answer.",
    ),
]
ReplicaLabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--replica-label",
        metavar="NAME",
        help="Label by which replicas of one Prometheus differ. Repeatable. "
        "Default: prometheus_replica, replica, __replica__.",
    ),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options above say of a server, in their words."""

    url: str
    selector: str
    since: str
    until: str | None
    step: str
    token_file: Path | None
    token_env: str | None
    user: str | None
    password_file: Path | None
    ca_file: Path | None
    timeout: float
    replica_label: list[str] | None


def fetched(asked: Asked, *, progress: bool) -> ClusterHistory:
    """Return the history that the server has. progress: show a bar. Raises TwinbedError."""
    from lab.ask.times import duration_s, moment_s
    from lab.cli.progress import Bar
    from lab.connect.http import Access, authorization
    from lab.connect.prometheus import Question, fetch
    from traces.prometheus.series import REPLICA_LABELS

    step_s = duration_s(asked.step, "--step")
    end_s = time.time() - step_s if asked.until is None else moment_s(asked.until, "--until")
    question = Question(
        selector=asked.selector,
        start_s=end_s - duration_s(asked.since, "--since"),
        end_s=end_s,
        step_s=step_s,
        replica_labels=tuple(asked.replica_label or REPLICA_LABELS),
    )
    secret = authorization(asked.token_file, asked.token_env, asked.user, asked.password_file)
    access = Access(asked.url, secret, asked.ca_file, asked.timeout)
    with Bar(1, wanted=progress, preparing="asking for the containers") as bar:
        return fetch(access, question, lambda done: bar("reading", done))
