"""What `twinbed controller` is given: applications, global limits, containers on agents, a policy, as YAML.

For: reading and checking the file, and its JSON schema. Not for: running it (testbed.containers.remote). It
comes from a user and says what is run as root on other machines, so it is read strictly: no key twice,
no aliases (a few lines of them can stand for gigabytes), no path that leads out of a hierarchy.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from control.allocator.model import PAGE_BYTES, Application
from control.allocator.ports import Allocator
from lab.ask import policy as policies
from lab.ask.problems import describe
from lab.ask.section import Command, Environment
from lab.ask.strict_yaml import parse
from testbed.containers.host.container import RuntimeName
from testbed.containers.remote.deployment import Deployment, Placed, Watch
from twinbed import ScenarioError

MAX_FILE_BYTES = 256 * 1024
"""Some thousand containers; a larger file is a mistake or worse."""

_MAX_DEPTH = 16


def _policy(text: str) -> str:
    try:
        return policies.parse(text).text
    except ScenarioError as error:
        raise ValueError(str(error)) from None


def _cgroup(text: str) -> str:
    parts = PurePosixPath(text).parts
    if not text.startswith("/") or ".." in parts or parts == ("/",) or not text.isprintable():
        raise ValueError(
            f"expected a path like /docker/abc below the cgroup mount, without '..', not {text!r}"
        )
    return str(PurePosixPath(text))


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
CgroupPath = Annotated[str, AfterValidator(_cgroup), Field(max_length=1024)]
PolicyText = Annotated[str, AfterValidator(_policy)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class AttachPaths(_Strict):
    """A cgroup whose paths differ between version 1's hierarchies."""

    cpu: CgroupPath
    memory: CgroupPath


class ContainerEntry(_Strict):
    """One container on one agent: a command that the agent runs, or an existing cgroup."""

    name: Name = Field(description="Letters, digits, - and _; once in the file.")
    agent: Name = Field(description="The agent of the host that it is on.")
    command: Command | None = Field(
        default=None, description="Run without a shell; text is split as a shell would."
    )
    env: Environment = Field(default_factory=dict, description="Added to the agent's own.")
    runtime: RuntimeName = Field(
        default="process",
        description="What the command is run as: a process of the host in a cgroup of its own, or an OCI "
        "container (runc) that sees the host's files read-only.",
    )
    attach: CgroupPath | AttachPaths | None = Field(
        default=None,
        description="Instead of a command: path of the cgroup, as in /proc/PID/cgroup; where it differs "
        "between hierarchies, one each for cpu and memory.",
    )
    peak_cores: PositiveFloat | None = Field(default=None, description="Profiled, for policies that need it.")
    peak_bytes: PositiveInt | None = Field(default=None, description="Profiled, for policies that need it.")

    @field_validator("command", "env")
    @classmethod
    def _no_nul(cls, given: Any) -> Any:
        if given is not None and any("\0" in text for text in given):
            raise ValueError("a NUL character cannot be passed to a command")
        return given

    @property
    def paths(self) -> dict[str, str]:
        """As Placed.attach."""
        if isinstance(self.attach, AttachPaths):
            return self.attach.model_dump()
        return {"": self.attach} if self.attach else {}

    @model_validator(mode="after")
    def _one_of(self) -> ContainerEntry:
        if (self.command is None) == (self.attach is None):
            raise ValueError(f"container {self.name}: give either command or attach")
        if self.attach is not None and self.runtime != "process":
            raise ValueError(f"container {self.name}: runtime is for a command; leave it out with attach")
        return self


class WatchEntry(_Strict):
    """Cgroups that appear below a parent join the application, and leave it when they disappear."""

    agent: Name
    parent: CgroupPath = Field(description="As attach; its children are watched, not what is below them.")
    pattern: str = Field(
        default="*", min_length=1, max_length=256, description="Of their names, with * and ?."
    )


class ApplicationEntry(_Strict):
    """A Distributed Container: all containers of one tenant, on any number of hosts, under two limits."""

    name: Name
    cpu_limit_cores: PositiveFloat = Field(
        description="Ω: what the CPU limits of all containers may add up to."
    )
    memory_limit_bytes: int = Field(ge=PAGE_BYTES, description="M: the same for memory.")
    containers: list[ContainerEntry] = Field(default_factory=list)
    watch: list[WatchEntry] = Field(default_factory=list)


class DeploymentFile(_Strict):
    """Applications on agents, and the policy that decides their limits."""

    policy: PolicyText = Field(default="escra", description="NAME[:KEY=VALUE]…, as in scenarios.")
    applications: list[ApplicationEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _once(self) -> DeploymentFile:
        entries = [each for app in self.applications for each in app.containers]
        _refuse_twice("application {}", [app.name for app in self.applications])
        _refuse_twice("container {}", [each.name for each in entries])
        _refuse_twice(
            "cgroup {0[1]} of agent {0[0]}", [(e.agent, p) for e in entries for p in {*e.paths.values()}]
        )
        for app in self.applications:
            if not app.containers and not app.watch:
                raise ValueError(f"application {app.name}: neither containers nor watch")
        return self


@dataclass(frozen=True, slots=True)
class Plan:
    """What the file says: the deployment, and a fresh allocator of its policy."""

    deployment: Deployment
    allocator: Allocator


def load(path: Path) -> Plan:
    """Reads a deployment. Raises ScenarioError in one line that names the file and the key."""
    given = _checked(path)
    apps = list(enumerate(given.applications))
    return Plan(
        Deployment(
            tuple(Application(app.name, app.cpu_limit_cores, app.memory_limit_bytes) for _, app in apps),
            tuple(
                Placed(
                    each.name,
                    each.agent,
                    index,
                    tuple(each.command or ()),
                    each.env,
                    each.paths,
                    each.peak_cores,
                    each.peak_bytes,
                    each.runtime,
                )
                for index, app in apps
                for each in app.containers
            ),
            tuple(Watch(e.agent, index, e.parent, e.pattern) for index, app in apps for e in app.watch),
        ),
        policies.parse(given.policy).make(),
    )


def schema_json() -> str:
    """The file's JSON schema, as published."""
    return json.dumps(DeploymentFile.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


def _checked(path: Path) -> DeploymentFile:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read ({error.strerror})") from error
    if len(content) > MAX_FILE_BYTES:
        raise ScenarioError(f"{path}: larger than {MAX_FILE_BYTES} bytes; split it over several controllers")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: cannot be read (not UTF-8)") from None
    _refuse_bombs(text, path)
    data = parse(text, str(path))
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: expected keys, `applications` among them")
    try:
        return DeploymentFile.model_validate(data)
    except ValidationError as error:
        raise ScenarioError(describe(error, DeploymentFile, str(path))) from None


def _refuse_bombs(text: str, path: Path) -> None:
    """Looks at the events only, so nothing is built of what is refused."""
    depth = 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ScenarioError(f"{path}: line {_line(event)}: aliases (*{event.anchor}) are not allowed")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > _MAX_DEPTH:
                raise ScenarioError(
                    f"{path}: line {_line(event)}: nested deeper than {_MAX_DEPTH}; nothing here is"
                )
    except yaml.YAMLError:
        # `parse` meets it again, and says where it is.
        return


def _line(event: yaml.Event) -> int:
    return 1 + (event.start_mark.line if event.start_mark else 0)


def _refuse_twice(what: str, names: list[Any]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{what.format(name)} is given twice")
