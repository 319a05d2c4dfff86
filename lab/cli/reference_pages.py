"""The generated reference: command line, scenario keys, metrics, policies, JSON schema, from the code itself.

For: `python -m lab.cli.reference_pages`, which rewrites the files; a test fails when they are not current.
Not for: prose (docs/how-to, docs/architecture.md).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from control.allocator import POLICIES
from lab import kinds
from lab.ask.scenario import Scenario, schema_json
from lab.cli import reference as cli
from lab.containers.input.deployment import schema_json as deployment_schema_json
from lab.containers.input.services.application import AppSpec, app_schema_json
from lab.runs.metric import Metric

ROOT = Path(__file__).resolve().parents[2]
_MADE = "<!-- Made by `python -m lab.cli.reference_pages`; edit the code, not this file. -->\n"


def documents() -> dict[Path, str]:
    """Every generated file, by its path under the repository's root."""
    return {
        Path("scenarios/schema.json"): schema_json(),
        Path("scenarios/apps/schema.json"): app_schema_json(),
        Path("docs/reference/deployment.schema.json"): deployment_schema_json(),
        Path("docs/reference/scenario.md"): _scenario(),
        Path("docs/reference/apps.md"): _apps(),
        Path("docs/reference/metrics.md"): _metrics(),
        Path("docs/reference/policies.md"): _policies(),
        Path("docs/reference/cli.md"): _MADE + "\n" + cli.document(),
    }


def _scenario() -> str:
    head = (
        f"{_MADE}\n# Scenario files\n\n"
        "A YAML file that asks one question. Unknown keys and keys given twice are errors; what is left out "
        "has the default shown. `--set KEY=VALUE` reaches every key by its dotted path "
        "(`machine.restart_s=5`), and every parameter of a policy as `POLICY.PARAMETER=VALUE` "
        "(`escra.kappa=0.5`). The JSON schema is `scenarios/schema.json`.\n\n"
        "A run's id is made of what its tables depend on: the resolved scenario without its title and "
        "question, the policy, the seed, the contents of the trace and of the calibration, and twinbed's "
        "version. Where the files lie does not matter.\n"
    )
    roots: tuple[type[BaseModel], ...] = (Scenario, *(kind.scenario_model() for kind in kinds.KINDS))
    models = [model for root in roots for model in _models(root)]
    return head + "".join(_section(model) for model in dict.fromkeys(models))


def _apps() -> str:
    head = (
        f"{_MADE}\n# Application files\n\n"
        "A YAML file that describes an application: its services, whom they call, and what clients ask for. "
        "The way in is [a how-to](../how-to/describe-your-application.md). Unknown keys and keys given twice "
        "are errors; what is left out has the default shown. Names are of letters, digits, `-`, `_`. "
        "Handlers must not call each other in a cycle. The JSON schema is `scenarios/apps/schema.json`.\n"
    )
    return head + "".join(_section(model) for model in _models(AppSpec))


def _section(model: type[BaseModel]) -> str:
    """The keys of a section; those that it has from another section are told there."""
    text = " ".join((model.__doc__ or "").split())
    inherited = {key for base in model.__bases__ for key in getattr(base, "model_fields", {})}
    rows = "".join(
        f"| `{name}` | {_type(each.annotation)} | {_default(each)} | {each.description or ''} |\n"
        for name, each in model.model_fields.items()
        if name not in inherited or name in model.__annotations__
    )
    return f"\n## {model.__name__}\n\n{text}\n\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}"


def _models(model: type[BaseModel]) -> list[type[BaseModel]]:
    found = [model]
    for each in model.model_fields.values():
        for inner in _inside(each.annotation):
            found += [one for one in _models(inner) if one not in found]
    return found


def _inside(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in _inside(argument)]


def _type(annotation: Any) -> str:
    """The type as a reader says it: `number`, `list of text`, a section's name."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(each) for each in arguments if each is not type(None))
    if origin is typing.Literal:
        return " or ".join(f"`{each}`" for each in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"{_type(arguments[1])} by name"
    plain = {int: "integer", float: "number", str: "text", Any: "anything"}
    return plain.get(annotation) or str(annotation.__name__)


def _default(each: FieldInfo) -> str:
    if each.is_required():
        return "required"
    value = each.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "see below"
    return "" if value in (None, "", {}, []) else f"`{value}`"


def _metrics() -> str:
    head = (
        f"{_MADE}\n# Metrics\n\n"
        "Figures of one run, in its table `summary` and, for containers, also in the table `containers`. "
        "Quantiles "
        "of limits are over container-periods: one value per container and period in which the container is "
        "up at "
        "the period's end. A figure without a meaning for the run (latency where there are no requests, "
        "memory of a "
        "trace without memory) is NaN. Tables for people leave out figures that have no meaning for any of "
        "the runs "
        "compared. JSON and CSV always have every key, as null or empty.\n"
    )
    return head + "".join(f"\n## Runs with {kind.title}\n\n{_listed(kind.metrics())}" for kind in kinds.KINDS)


def _listed(metrics: Sequence[Metric]) -> str:
    rows = "".join(
        f"| `{each.key}` | {each.title} | {each.unit} | {each.better} | {each.definition} |\n"
        for each in metrics
    )
    return f"| key | title | unit | better | definition |\n|---|---|---|---|---|\n{rows}"


def _policies() -> str:
    text = f"{_MADE}\n# Policies\n\nWritten `NAME[:KEY=VALUE]…`, e.g. `static:factor=1.0`.\n"
    for name, (settings, _) in POLICIES.items():
        head = "| parameter | default | unit | range | why |\n|---|---|---|---|---|"
        text += f"\n## {name}\n\n{head if fields(settings) else 'It has no parameters.'}\n"
        for each in fields(settings()):
            about = each.metadata
            limits = "–".join("" if about[key] is None else f"{about[key]:g}" for key in ("low", "high"))
            default = getattr(settings(), each.name)
            text += f"| `{each.name}` | `{default}` | {about['unit']} | {limits} | {about['why']} |\n"
    return text


def main() -> None:
    """Writes all generated files."""
    for path, text in documents().items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
