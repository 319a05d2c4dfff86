"""Writes the generated reference from the code: command line, scenario keys, metrics, policies, JSON
schemas.

For: `python -m lab.cli.reference_pages`, which rewrites the files. A test fails if a file is not current. Not
for: prose (docs/how-to, docs/architecture.md).
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from control.allocator import POLICIES
from lab import answers, api, kinds
from lab.ask.scenario import Scenario, schema_json
from lab.cli import reference as cli
from lab.containers.input.deployment import schema_json as deployment_schema_json
from lab.containers.input.services.application import AppSpec, app_schema_json
from lab.runs.metric import Metric
from testbed.containers.exporting.table import METRICS, of

ROOT = Path(__file__).resolve().parents[2]
_MADE = "<!-- Made by `python -m lab.cli.reference_pages`; edit the code, not this file. -->\n"


def documents() -> dict[Path, str]:
    """Return every generated file, by its path under the repository's root."""
    return {
        Path("scenarios/schema.json"): schema_json(),
        Path("scenarios/apps/schema.json"): app_schema_json(),
        Path("docs/reference/deployment.schema.json"): deployment_schema_json(),
        Path("docs/reference/scenario.md"): _scenario(),
        Path("docs/reference/apps.md"): _apps(),
        Path("docs/reference/metrics.md"): _metrics(),
        Path("docs/reference/policies.md"): _policies(),
        Path("docs/reference/prometheus.md"): _prometheus(),
        Path("docs/reference/api.md"): _api(),
        Path("docs/reference/cli.md"): _MADE + "\n" + cli.document(),
    }


def _scenario() -> str:
    head = (
        f"{_MADE}\n# Scenario files\n\n"
        "A scenario is a YAML file that asks one question. Unknown keys and keys given twice are errors. A "
        "key that is left out has the default shown. `--set KEY=VALUE` reaches every key by its dotted path "
        "(`machine.restart_s=5`), and every parameter of a policy as `POLICY.PARAMETER=VALUE` "
        "(`escra.kappa=0.5`). The JSON schema is `scenarios/schema.json`.\n\n"
        "A run's id is a hash of all that its tables depend on: the resolved scenario without its title and "
        "question, the policy, the seed, the contents of the trace and of the calibration, and the code "
        "that can influence a result. The location of the files does not matter.\n"
    )
    roots: tuple[type[BaseModel], ...] = (Scenario, *(kind.scenario_model() for kind in kinds.KINDS))
    models = [model for root in roots for model in _models(root)]
    return head + "".join(_section(model) for model in dict.fromkeys(models))


def _apps() -> str:
    head = (
        f"{_MADE}\n# Application files\n\n"
        "An application is a YAML file with services, the calls between them, and the requests of clients. "
        "Begin with [the how-to](../how-to/describe-your-application.md). Unknown keys and keys given twice "
        "are errors. A key that is left out has the default shown. Names have letters, digits, `-` and `_`. "
        "Handlers must not call each other in a cycle. The JSON schema is `scenarios/apps/schema.json`.\n"
    )
    return head + "".join(_section(model) for model in _models(AppSpec))


def _section(model: type[BaseModel]) -> str:
    """Return the keys of a section, without the keys that it inherits from another section."""
    text = _one_line(model.__doc__)
    inherited = {key for base in model.__bases__ for key in getattr(base, "model_fields", {})}
    rows = "".join(
        f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {_one_line(field.description)} |\n"
        for name, field in model.model_fields.items()
        if name not in inherited or name in model.__annotations__
    )
    return f"\n## {model.__name__}\n\n{text}\n\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _models(model: type[BaseModel]) -> list[type[BaseModel]]:
    models = [model]
    for field in model.model_fields.values():
        for inner in _inside(field.annotation):
            models += [further for further in _models(inner) if further not in models]
    return models


def _inside(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in _inside(argument)]


def _type(annotation: Any) -> str:
    """Return the type in a reader's words: `number`, `list of text`, a section's name."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(argument) for argument in arguments if argument is not type(None))
    if origin is typing.Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"{_type(arguments[1])} by name"
    plain = {int: "integer", float: "number", str: "text", Any: "anything"}
    return plain.get(annotation) or str(annotation.__name__)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "see below"
    return "" if value in (None, "", {}, []) else f"`{value}`"


def _metrics() -> str:
    head = (
        f"{_MADE}\n# Metrics\n\n"
        "Figures of one run, in its table `summary` and, for containers, also in the table `containers`. "
        "Quantiles of limits are over container-periods: one value per container and period in which the "
        "container is up at the period's end. A figure without a meaning for the run (latency without "
        "requests, memory of a trace without memory, a measure that the run does not have) is NaN. Tables "
        "for people leave out figures that have no meaning for any of the compared runs. JSON and CSV always "
        "have every key, as null or empty.\n\n"
        "Latency counts requests without an answer: such a request is later than every answer, and it "
        "waited at least until the run's end. A percentile that falls among such requests, and "
        "every mean over them, is a lower bound. People see `> 27.3`. In JSON and CSV the bound is the "
        "number, and `KEY_censored` beside it is true; in the table `summary` and in the manifest it is "
        "`censored`. Comparisons treat a bound as one: a change against a bound is an interval, a mean over "
        "seeds with a bound is a bound, and no bound is marked as the best.\n"
    )
    return head + "".join(f"\n## Runs with {kind.title}\n\n{_listed(kind.metrics())}" for kind in kinds.KINDS)


def _listed(metrics: Sequence[Metric]) -> str:
    rows = "".join(
        f"| `{metric.key}` | {metric.title} | {metric.unit} | {metric.better} | {metric.definition} |\n"
        for metric in metrics
    )
    return f"| key | title | unit | better | definition |\n|---|---|---|---|---|\n{rows}"


def _policies() -> str:
    text = f"{_MADE}\n# Policies\n\nA policy is written `NAME[:KEY=VALUE]…`, e.g. `static:factor=1.0`.\n"
    for name, (settings, _) in POLICIES.items():
        head = "| parameter | default | unit | range | why |\n|---|---|---|---|---|"
        text += f"\n## {name}\n\n{head if fields(settings) else 'It has no parameters.'}\n"
        for field in fields(settings()):
            about = field.metadata
            limits = "–".join("" if about[key] is None else f"{about[key]:g}" for key in ("low", "high"))
            default = getattr(settings(), field.name)
            text += f"| `{field.name}` | `{default}` | {about['unit']} | {limits} | {about['why']} |\n"
    return text


def _api() -> str:
    text = (
        f"{_MADE}\n# Python API\n\n`import twinbed as tb` is fast; what is used is loaded then. Units are in "
        "the names: `_s` seconds, `_usd` US dollars. Bad input raises a `tb.TwinbedError` of one line, as "
        "the command line prints it. Results show themselves as tables in notebooks.\n"
    )
    for function in api.FUNCTIONS:
        lines = (inspect.getdoc(function) or "").split("\n\n")
        says = "\n\n".join(map(_one_line, lines))
        arguments = ",\n".join(f"    {spec}" for spec in _written(function))
        returned = inspect.signature(function).return_annotation
        call = f"tb.{function.__name__}(\n{arguments},\n) -> {returned}"
        text += f"\n## tb.{function.__name__}\n\n```python\n{call}\n```\n\n{says}\n"
    for kind in (answers.Runs, answers.Sweep, answers.Table, answers.Ranking, answers.Advised):
        members = {
            key: value
            for base in reversed(kind.__mro__)
            for key, value in vars(base).items()
            if base.__module__ == answers.__name__ and key[0] != "_"
        }
        rows = "".join(
            f"| `{key}` | {_one_line(inspect.getdoc(value))} |\n"
            for key, value in members.items()
            if inspect.getdoc(value) and (callable(value) or isinstance(value, property))
        )
        about = _one_line(inspect.getdoc(kind))
        text += f"\n## {kind.__name__}\n\n{about}\n\n| attribute | what it is |\n|---|---|\n{rows}"
    return text


def _written(function: Callable[..., Any]) -> Iterator[str]:
    """Yield a function's parameters as text, as in its signature."""
    starred = False
    for spec in inspect.signature(function).parameters.values():
        if spec.kind is spec.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        default = "" if spec.default is spec.empty else f" = {spec.default!r}"
        star = "*" if spec.kind is spec.VAR_POSITIONAL else ""
        yield f"{star}{spec.name}: {spec.annotation}{default}"


def _prometheus() -> str:
    text = (
        f"{_MADE}\n# Metrics for Prometheus\n\n"
        "With `--metrics [HOST:]PORT` these programs serve their own figures at `/metrics`; see [the how-to]"
        "(../how-to/watch-with-prometheus.md). The names are stable. Counters begin at 0 when the program "
        "starts. A histogram has the series `NAME_bucket`, `NAME_sum` and `NAME_count`.\n"
    )
    for program in dict.fromkeys(metric.program for metric in METRICS):
        text += (
            f"\n## twinbed {program}\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n"
        )
        for metric in of(program):
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            text += f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.meaning} |\n"
    return text


def main() -> None:
    """Write all generated files."""
    for path, text in documents().items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
