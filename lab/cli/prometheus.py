"""The options with which verbs read a cluster's history from a server, and the reading itself.

For: `traces import prometheus` and `advise --prometheus`. Not for: asking (lab.connect.prometheus).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from lab.cli.options import option, usable

if TYPE_CHECKING:
    from traces.prometheus.history import ClusterHistory


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a verb about a server. Each field is an option (see `asking`)."""

    selector: Annotated[
        str,
        option(
            "MATCHERS",
            'Which containers, as in PromQL: namespace="shop",pod=~"web-.*". Default: all.',
            show_default=False,
        ),
    ] = ""
    since: Annotated[str, option("TIME", "Length of the history: 7d, 12h, 90m.")] = "7d"
    until: Annotated[
        str | None,
        option(
            "MOMENT", "End of the history: 2024-05-01T10:00:00Z or seconds since 1970. Default: one step ago."
        ),
    ] = None
    step: Annotated[str, option("TIME", "Length of an interval; not below the scrape interval.")] = "30s"
    token_file: Annotated[Path | None, option("FILE", "File with a bearer token.")] = None
    token_env: Annotated[str | None, option("NAME", "Environment variable with a bearer token.")] = None
    user: Annotated[str | None, option("NAME", "User, for basic authentication.")] = None
    password_file: Annotated[Path | None, option("FILE", "File with the user's password.")] = None
    ca_file: Annotated[
        Path | None, option("FILE", "Certificates (PEM) that sign the server's. Default: the system's.")
    ] = None
    timeout: Annotated[
        float, option("S", "Longest wait for the next bytes of an answer.", min=0.1, callback=usable)
    ] = 60.0
    replica_label: Annotated[
        list[str] | None,
        option(
            "NAME",
            "Label that distinguishes replicas of one Prometheus. Repeatable. "
            "Default: prometheus_replica, replica, __replica__.",
        ),
    ] = None


DEFAULTS = Asked()


def asking(verb: Callable[..., None]) -> Callable[..., None]:
    """Return the verb with the options of Asked in place of its parameter `asked`."""
    options = get_type_hints(Asked, include_extras=True)
    types = get_type_hints(verb, include_extras=True) | options
    parameters: list[Parameter] = []
    for name, own in signature(verb).parameters.items():
        parameters += signature(Asked).parameters.values() if name == "asked" else [own]

    @wraps(verb)
    def called(**given: Any) -> None:
        verb(asked=Asked(**{name: given.pop(name) for name in options}), **given)

    called.__signature__ = Signature(  # type: ignore[attr-defined]
        [own.replace(annotation=types[own.name]) for own in parameters]
    )
    called.__annotations__ = types
    return called


def fetched(url: str, asked: Asked, *, progress: bool) -> ClusterHistory:
    """Return the history of the server at `url`. progress: show a bar. Raise TwinbedError."""
    from lab.ask.times import duration_s, moment_s
    from lab.cli.progress import Bar
    from lab.connect.http import Access, authorization
    from lab.connect.prometheus import HistoryQuestion, fetch
    from traces.prometheus.series import REPLICA_LABELS

    step_s = duration_s(asked.step, "--step")
    end_s = time.time() - step_s if asked.until is None else moment_s(asked.until, "--until")
    question = HistoryQuestion(
        selector=asked.selector,
        start_s=end_s - duration_s(asked.since, "--since"),
        end_s=end_s,
        step_s=step_s,
        replica_labels=tuple(asked.replica_label or REPLICA_LABELS),
    )
    secret = authorization(asked.token_file, asked.token_env, asked.user, asked.password_file)
    access = Access(url, secret, asked.ca_file, asked.timeout)
    with Bar(1, wanted=progress, preparing="asking for the containers") as bar:
        return fetch(access, question, lambda done: bar("reading", done))
