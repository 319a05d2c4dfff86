"""Reads the history of a cluster's containers from Prometheus, Thanos or VictoriaMetrics.

Source: prometheus.io/docs/prometheus/latest/querying/api. For: `twinbed traces import prometheus`. Not for:
the meaning of series (traces.prometheus), nor HTTP (lab.connect.http).

Requests. /api/v1/series names the containers. Pods are taken in batches, so that memory stays bounded. For
each batch, query_range asks for usage at every step, in chunks of time below Prometheus' limit of 11,000
points per series; series that rarely change are requested every five minutes. A server answers with its last
sample at each step, up to five minutes old. So `timestamp(…)` is requested, too: a repeated sample is
recognised, and a counter's growth is counted between the times at which it was really read.

Differences of servers. Start and end are multiples of the step, because VictoriaMetrics and Thanos' frontend
would move them there. `nocache=1` keeps VictoriaMetrics from doing so anyway. `partial_response=false` makes
Thanos fail rather than leave stores out; an answer with `isPartial` is refused, and warnings become notes.
Targets without stale markers (VictoriaMetrics has none here, cAdvisor's own time stamps prevent them) seem to
live on for the look-back: their samples' times do not advance, so they end where they ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import ceil, floor

import numpy as np

from lab.connect.http import Access, Server
from traces.prometheus import names
from traces.prometheus.history import ClusterHistory, Part, assembled, check_cells, part
from traces.prometheus.matrix import Answer, MatrixReader
from traces.prometheus.series import REPLICA_LABELS, Series, Window
from traces.prometheus.workloads import TOLD
from traces.prometheus.workloads import label as label_of
from twinbed import BackendError, ScenarioError
from twinbed.files import MIB
from twinbed.text import printable

MOST_BYTES = 256 * MIB
"""Most bytes of an answer: the labels of some 400,000 series."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An answer of Prometheus whose `data` is a list. warnings: the server's warnings."""

    data: list[object]
    warnings: tuple[str, ...]


class Body:
    """Collects an answer from `url` and returns the list in it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._text = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take the next piece. Raises BackendError for more than MOST_BYTES."""
        self._text += piece
        if len(self._text) > MOST_BYTES:
            raise BackendError(f"{self._url}: more than {MOST_BYTES // MIB} MiB; take a narrower --selector")

    def listed(self) -> Listed:
        """Return the list. Raises BackendError, which names the URL, if the answer is none."""
        try:
            document = json.loads(self._text)
        except (ValueError, RecursionError):
            raise BackendError(
                f"{self._url}: the answer is not JSON; is it a Prometheus, or a login page before it?"
            ) from None
        if not isinstance(document, dict) or not isinstance(document.get("data"), list):
            raise BackendError(
                f"{self._url}: JSON, but not an answer of Prometheus; is the URL's path right?"
            )
        if document.get("isPartial") is True:
            raise BackendError(f"{self._url}: the answer is partial; try again when all of the storage is up")
        warnings = document.get("warnings")
        texts = tuple(printable(str(text)[:300]) for text in warnings) if isinstance(warnings, list) else ()
        return Listed(document["data"], texts)


MOST_POINTS = 11_000
"""Points per series that Prometheus gives at most in one answer (web/api/v1/api.go)."""

RARELY_S = 300.0
"""Distance of the samples of series that rarely change, s: Prometheus' look-back, so that no value is
missed."""

BATCH_CELLS = 2_000_000
"""Largest size of a batch, intervals × containers: 16 MB per quantity, and answers of at most 60 MB."""

MOST_PODS = 200
"""Pods of a batch: their names make a query of some 10 kB."""

LONGEST_S = 400 * 86_400.0
"""Longest history that is requested, s."""

_API = "/api/v1"
_CONTAINERS = 'container!="",container!="POD",pod!=""'
_MATCHER = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')

_CADVISOR_ONLY = frozenset(
    ("cpu", "endpoint", "id", "image", "instance", "job", "metrics_path", "name", "node", "service")
)
"""Labels that kube-state-metrics lacks, or has with another meaning. Matchers of them are left out there."""

_OBJECT = frozenset(("namespace", "pod", "container"))
"""Labels that are renamed to `exported_…` where a scrape adds its own."""

Progress = Callable[[float], None]
"""Called with the part that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """A request for a history.

    selector: matchers, `label="text"`, separated by commas; "" for every container
    start_s, end_s: the time, s since 1970; both are moved to multiples of the step
    step_s: length of an interval, s
    replica_labels: labels by which the replicas of one Prometheus differ
    """

    selector: str
    start_s: float
    end_s: float
    step_s: float
    replica_labels: tuple[str, ...] = REPLICA_LABELS


@dataclass(frozen=True, slots=True)
class _Query:
    """A question about one metric. expression: PromQL with `{}` for the matchers; metric: name of its series;
    step_s: time between samples, s; is_state: whether kube-state-metrics has it."""

    expression: str
    metric: str
    step_s: float
    is_state: bool = False


def fetch(access: Access, question: HistoryQuestion, progress: Progress | None = None) -> ClusterHistory:
    """Return the history of the containers that the selector matches.

    Raises ScenarioError for a question that cannot be asked, BackendError for a server that does not answer
    it, TraceError for an answer that makes no trace.
    """
    matchers = parsed(question.selector)
    window = window_of(question)
    server = Server(access)
    try:
        return _Reading(server, question, matchers, window).history(progress)
    finally:
        server.close()


def window_of(question: HistoryQuestion) -> Window:
    """Return the intervals of a question. Raises ScenarioError for an impossible step or time."""
    step_s = question.step_s
    if not 0.001 <= step_s <= 86_400 or abs(step_s * 1000 - round(step_s * 1000)) > 1e-6:
        raise ScenarioError(f"--step {step_s:g} s: expected whole milliseconds, from 1 ms to 1 day")
    start, end = floor(question.start_s / step_s + 1e-6), floor(question.end_s / step_s + 1e-6)
    if not 0 < (end - start) * step_s <= LONGEST_S:
        raise ScenarioError(
            f"--since: {question.end_s - question.start_s:g} s; expected a time from one step ({step_s:g} s) "
            f"to {LONGEST_S / 86_400:g} days"
        )
    return Window(start * step_s, step_s, end - start)


def parsed(selector: str) -> list[tuple[str, str]]:
    """Return (label, matcher) of each matcher of a selector. Raises ScenarioError that shows the place."""
    text = selector.strip().removeprefix("{").removesuffix("}").strip()
    matchers, place = [], 0
    while place < len(text):
        match = _MATCHER.match(text, place)
        if match is None:
            raise ScenarioError(
                f'--selector: {text[place : place + 80]!r} is no matcher; expected label="text" '
                '(or !=, =~, !~), separated by commas, e.g. \'namespace="shop",pod=~"web-.*"\''
            )
        matchers.append((match[1], f'{match[1]}{match[2]}"{match[3]}"'))
        place = match.end()
    return matchers


class _Reading:
    """One reading of a server's history. notes: the server's warnings."""

    def __init__(
        self, server: Server, question: HistoryQuestion, matchers: list[tuple[str, str]], window: Window
    ) -> None:
        self._server, self._question, self._window = server, question, window
        self._usage = ",".join([*(text for _, text in matchers), _CONTAINERS])
        of_state = [(name, text) for name, text in matchers if name not in _CADVISOR_ONLY]
        self._state = ",".join(text for _, text in of_state)
        self._renamed = ",".join(f"exported_{text}" if name in _OBJECT else text for name, text in of_state)
        self._labels = [name for name, _ in matchers]
        self._pod = {True: "pod", False: "pod"}
        """The label of a pod's name in series of its state, and in others."""
        self._warnings: dict[str, None] = {}

    def history(self, progress: Progress | None) -> ClusterHistory:
        """Return the history of all containers."""
        there = self._containers()
        check_cells(self._server.url(""), self._window, len(there))
        told = [(own.get("__name__", ""), own) for own in self._told()]
        batches = list(_batches(there, self._window.intervals))
        queries = self._queries()
        total = len(batches) * sum(len(self._chunks(query.step_s)) for query in queries)
        parts: list[Part] = []
        done = 0
        for pods in batches:
            series: list[Series] = []
            for query in queries:
                for first_s, last_s in self._chunks(query.step_s):
                    series += self._range(query, pods if len(batches) > 1 else None, first_s, last_s)
                    done += 1
                    if progress is not None:
                        progress(done / total)
            labels = self._question.replica_labels
            parts.append(part(_stitched(series), self._window, self._server.url(""), labels))
        notes = [self._note(), *(f"The server warns: {text}" for text in self._warnings)]
        return assembled(parts, self._window, self._server.url(""), told, notes)

    def _note(self) -> str:
        return (
            f"Read from {self._server.url('')} with the selector {{{self._usage}}}, {self._window.intervals} "
            f"intervals of {self._window.step_s:g} s; settings and events every {self._rarely_s():g} s."
        )

    def _rarely_s(self) -> float:
        return self._window.step_s * max(1, int(RARELY_S // self._window.step_s))

    def _queries(self) -> list[_Query]:
        step_s, rarely_s = self._window.step_s, self._rarely_s()
        usage = [_Query(f"{name}{{}}", name, step_s) for name in names.USAGE if name != names.CPU_SEEN]
        usage.append(_Query(f"timestamp({names.CPU}{{}})", names.CPU_SEEN, step_s))
        rare = [_Query(f"{name}{{}}", name, rarely_s) for name in names.SPECIFICATIONS]
        return usage + rare + [_Query(f"{name}{{}}", name, rarely_s, is_state=True) for name in names.STATE]

    def _chunks(self, step_s: float) -> list[tuple[float, float]]:
        """Return (first, last) times of each chunk. The last sample is one step after the window, so that
        the last interval is seen to its end."""
        points = self._window.intervals * self._window.step_s / step_s
        count = ceil(points - 1e-6) + 2
        firsts = range(0, count, MOST_POINTS)
        start_s = self._window.start_s
        return [
            (start_s + first * step_s, start_s + (min(first + MOST_POINTS, count) - 1) * step_s)
            for first in firsts
        ]

    def _containers(self) -> list[tuple[str, str, str]]:
        """Return the (namespace, pod, container) that the selector matches, sorted."""
        series = self._names([names.CPU], self._usage)
        self._pod[False] = _pod_label(series)
        keys = {
            (label_of(own, "namespace"), label_of(own, "pod"), label_of(own, "container")) for own in series
        }
        if not keys:
            raise BackendError(self._nothing())
        return sorted(keys)

    def _told(self) -> list[dict[str, str]]:
        """Return the labels of the series about state. If they are scraped without honor_labels, then their
        `pod` is kube-state-metrics' own, and the pod that they describe is `exported_pod`."""
        told = self._names(TOLD, self._state)
        if not told and self._renamed != self._state:
            told = self._names(TOLD, self._renamed)
            self._state = self._renamed if told else self._state
        self._pod[True] = _pod_label(told)
        return told

    def _nothing(self) -> str:
        """Return why no container matches: the label or the text that does not exist."""
        url, window = self._server.url(""), self._window
        text = (
            f"{url}: no {names.CPU}{{{self._usage}}} in the {window.intervals * window.step_s:g} s asked for"
        )
        labels = self._values("labels", names.CPU)
        if not labels:
            return f"{text}, nor any other; does this server scrape the kubelets' cAdvisor, and at that time?"
        for label in self._labels:
            if label not in labels:
                close = get_close_matches(label, labels, n=1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(labels)[:15])}"
                return f"{text}; no series has a label {label}; {hint}"
        label = self._labels[0] if self._labels else "namespace"
        known = sorted(self._values(f"label/{label}/values", names.CPU))
        return (
            f"{text}; its label {label} has the values {', '.join(known[:10])}; change --selector or --since"
        )

    def _values(self, what: str, metric: str) -> list[str]:
        data = self._json(f"/{what}", [("match[]", metric), *self._times()])
        return [text for text in data if isinstance(text, str)]

    def _names(self, metrics: Sequence[str], matchers: str) -> list[dict[str, str]]:
        """Return the labels of all series of these metrics."""
        data = self._json(
            "/series", [*(("match[]", f"{metric}{{{matchers}}}") for metric in metrics), *self._times()]
        )
        return [
            own
            for own in data
            if isinstance(own, dict) and all(isinstance(text, str) for text in own.values())
        ]

    def _times(self) -> list[tuple[str, str]]:
        end_s = self._window.start_s + self._window.intervals * self._window.step_s
        return [
            ("start", _number(self._window.start_s)),
            ("end", _number(end_s)),
            ("partial_response", "false"),
        ]

    def _json(self, path: str, form: list[tuple[str, str]]) -> list[object]:
        body = Body(self._server.url(_API + path))
        # Prometheus serves the values of a label by GET only.
        self._server.post(_API + path, form, body.feed, get=path.endswith("/values"))
        answer = body.listed()
        self._warnings |= dict.fromkeys(answer.warnings)
        return answer.data

    def _range(
        self, query: _Query, pods: Sequence[str] | None, first_s: float, last_s: float
    ) -> list[Series]:
        matchers = self._state if query.is_state else self._usage
        if pods is not None:
            named = f'{self._pod[query.is_state]}=~"{"|".join(map(_escaped, pods))}"'
            matchers = ",".join(filter(None, [matchers, named]))
        form = [
            ("query", query.expression.format(f"{{{matchers}}}")),
            ("start", _number(first_s)),
            ("end", _number(last_s)),
            ("step", _number(query.step_s)),
            ("partial_response", "false"),
            ("nocache", "1"),
        ]
        path = f"{_API}/query_range"
        reader = MatrixReader(self._server.url(path), query.metric)
        self._server.post(path, form, reader.feed)
        answers = reader.close()
        self._check(answers)
        return [entry for answer in answers for entry in answer.series]

    def _check(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            if answer.is_partial:
                raise BackendError(
                    f"{self._server.url('')}: the answer is partial, a part of the storage is away; "
                    "try again when all of it is up"
                )
            self._warnings |= dict.fromkeys(answer.warnings)


def _pod_label(series: Sequence[Mapping[str, str]]) -> str:
    return "exported_pod" if any("exported_pod" in own for own in series) else "pod"


def _batches(containers: Sequence[tuple[str, str, str]], intervals: int) -> Iterable[list[str]]:
    """Yield the pods of each batch; all containers of pods with the same name are in one batch."""
    most = max(1, BATCH_CELLS // intervals)
    counts: dict[str, int] = {}
    for _, pod, _ in containers:
        counts[pod] = counts.get(pod, 0) + 1
    batch: list[str] = []
    size = 0
    for pod, count in counts.items():
        if batch and (size + count > most or len(batch) == MOST_PODS):
            yield batch
            batch, size = [], 0
        batch.append(pod)
        size += count
    if batch:
        yield batch


def _stitched(series: Iterable[Series]) -> list[Series]:
    """Return the chunks of each series put together."""
    chunks: dict[tuple[str, frozenset[tuple[str, str]]], list[Series]] = {}
    for entry in series:
        chunks.setdefault((entry.metric, frozenset(entry.labels.items())), []).append(entry)
    return [
        own[0]
        if len(own) == 1
        else Series(
            own[0].metric,
            own[0].labels,
            np.concatenate([chunk.times_s for chunk in own]),
            np.concatenate([chunk.values for chunk in own]),
            sum(chunk.dropped for chunk in own),
        )
        for own in chunks.values()
    ]


def _escaped(pod: str) -> str:
    """Return a pod's name as a regular expression inside a text of PromQL."""
    return "".join(char if char.isalnum() or char in "-_" else f"\\\\{char}" for char in pod)


def _number(seconds: float) -> str:
    return f"{seconds:.3f}"
