"""The deployment file of `twinbed controller`: applications, global limits, containers on agents, and a
policy.

For: reading and checking the file, and its JSON schema. Not for: running it (testbed.containers.remote). The
file comes from a user and defines what runs as root on other machines. So it is read strictly: no key twice,
no aliases, no path that leads out of a hierarchy.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from control.allocator.model import PAGE_BYTES, Application
from control.allocator.ports import Allocator
from lab.ask import guard
from lab.ask import policy as policies
from lab.ask.problems import validated
from lab.ask.scenario import PolicyText
from lab.ask.section import DESCRIBED, Command, Environment
from testbed.containers.attach import names
from testbed.containers.host.container import RuntimeName
from testbed.containers.remote.deployment import Deployment, Placed, Watch
from twinbed import ScenarioError, own


def _container(text: str) -> str:
    try:
        name = names.parse(text)
    except ScenarioError as error:
        raise ValueError(str(error)) from None
    if name.kind == names.CGROUP:
        raise ValueError(f"{text}: this is a path; give it as attach")
    return text


def _cgroup(text: str) -> str:
    parts = PurePosixPath(text).parts
    if not text.startswith("/") or ".." in parts or parts == ("/",) or not text.isprintable():
        raise ValueError(
            f"expected a path like /docker/abc below the cgroup mount, without '..', not {text!r}"
        )
    return str(PurePosixPath(text))


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
CgroupPath = Annotated[str, AfterValidator(_cgroup), Field(max_length=1024)]
NameOfContainer = Annotated[str, AfterValidator(_container), Field(max_length=600)]


class _Strict(BaseModel):
    model_config = ConfigDict(**DESCRIBED, extra="forbid", frozen=True, allow_inf_nan=False)


class AttachPaths(_Strict):
    """A cgroup whose path differs between the hierarchies of cgroup version 1."""

    cpu: CgroupPath
    memory: CgroupPath


class ContainerEntry(_Strict):
    """One container on one agent: a command that the agent runs, an existing cgroup, or a name."""

    name: Name = Field(description="Name of letters, digits, - and _, used once in the file.")
    agent: Name = Field(description="Agent of the host that the container is on.")
    command: Command | None = None
    """Command to run, without a shell; text is split by a shell's rules."""
    env: Environment = Field(default_factory=dict)
    """Environment variables, in addition to the agent's."""
    runtime: RuntimeName = "process"
    """How the command runs: as a process of the host in a cgroup of its own, or as an OCI container (runc)
    that sees the host's files read-only."""
    attach: CgroupPath | AttachPaths | None = None
    """Path of an existing cgroup instead of a command, as in /proc/PID/cgroup; two paths, for cpu and memory,
    if they differ between hierarchies."""
    container: NameOfContainer | None = None
    """Running containers by name instead of a command: docker:NAME, podman:NAME, compose:PROJECT/SERVICE,
    pod:NAME or systemd:UNIT. They join when they start, and again after a restart."""
    peak_cores: PositiveFloat | None = None
    """Profiled CPU peak for policies that need it, cores."""
    peak_bytes: PositiveInt | None = None
    """Profiled memory peak for policies that need it, bytes."""

    @field_validator("command", "env")
    @classmethod
    def _no_nul(cls, value: Any) -> Any:
        if value is not None and any("\0" in text for text in value):
            raise ValueError("a NUL character cannot be passed to a command")
        return value

    @property
    def paths(self) -> dict[str, str]:
        """The cgroup's paths, as in Placed.attach."""
        if isinstance(self.attach, AttachPaths):
            return self.attach.model_dump()
        return {"": self.attach} if self.attach else {}

    @model_validator(mode="after")
    def _one_of(self) -> ContainerEntry:
        if sum(given is not None for given in (self.command, self.attach, self.container)) != 1:
            raise ValueError(f"container {self.name}: give either command or attach or container")
        if self.command is None and self.runtime != "process":
            raise ValueError(f"container {self.name}: runtime is for a command; leave it out with attach")
        return self


class WatchEntry(_Strict):
    """Cgroups that join the application when they appear below a parent, and leave it when they disappear."""

    agent: Name = Field(description="Agent of the host that the cgroups are on.")
    parent: CgroupPath
    """Path of the parent, as `attach`; only its direct children are watched."""
    pattern: str = Field(default="*", min_length=1, max_length=256)
    """Pattern of their names, with * and ?."""


class ApplicationEntry(_Strict):
    """A Distributed Container: all containers of one tenant, on any number of hosts, under two limits."""

    name: Name = Field(description="Name of the application, used once in the file.")
    cpu_limit_cores: PositiveFloat
    """Ω: the most that the CPU limits of all containers add up to, cores."""
    memory_limit_bytes: int = Field(ge=PAGE_BYTES)
    """M: the most that the memory limits of all containers add up to, bytes."""
    containers: list[ContainerEntry] = Field(default_factory=list, description="Its containers.")
    watch: list[WatchEntry] = Field(default_factory=list)
    """Cgroups that join it when they appear."""


class DeploymentFile(_Strict):
    """Applications on agents, and the policy that decides their limits."""

    policy: PolicyText = Field(default="escra", description="Policy, `NAME[:KEY=VALUE]…`, as in scenarios.")
    applications: list[ApplicationEntry] = Field(min_length=1, description="The applications.")

    @model_validator(mode="after")
    def _once(self) -> DeploymentFile:
        entries = [container for app in self.applications for container in app.containers]
        _refuse_twice("application {}", [app.name for app in self.applications])
        _refuse_twice("container {}", [entry.name for entry in entries])
        _refuse_twice(
            "cgroup {0[1]} of agent {0[0]}",
            [(entry.agent, path) for entry in entries for path in {*entry.paths.values()}],
        )
        _refuse_twice(
            "{0[1]} of agent {0[0]}",
            [(entry.agent, entry.container) for entry in entries if entry.container is not None],
        )
        for app in self.applications:
            if not app.containers and not app.watch:
                raise ValueError(f"application {app.name}: give containers or watch")
        return self


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """The content of a file: the deployment, and a new allocator of its policy. policy: the policy's text."""

    deployment: Deployment
    allocator: Allocator
    policy: str


def load(path: Path) -> DeploymentPlan:
    """Read a deployment. Raises ScenarioError in one line that names the file and the key."""
    file = _checked(path)
    apps = list(enumerate(file.applications))
    return DeploymentPlan(
        Deployment(
            tuple(Application(app.name, app.cpu_limit_cores, app.memory_limit_bytes) for _, app in apps),
            tuple(
                Placed(
                    entry.name,
                    entry.agent,
                    index,
                    tuple(entry.command or ()),
                    entry.env,
                    entry.paths,
                    entry.peak_cores,
                    entry.peak_bytes,
                    entry.runtime,
                )
                for index, app in apps
                for entry in app.containers
                if entry.container is None
            ),
            (
                *(
                    Watch(entry.agent, index, entry.parent, entry.pattern)
                    for index, app in apps
                    for entry in app.watch
                ),
                *(
                    Watch(entry.agent, index, entry.container, "*", entry.peak_cores, entry.peak_bytes)
                    for index, app in apps
                    for entry in app.containers
                    if entry.container is not None
                ),
            ),
        ),
        policies.parse(file.policy).make(),
        file.policy,
    )


def schema_json() -> str:
    """Return the file's JSON schema, as published."""
    return json.dumps(DeploymentFile.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


def _checked(path: Path) -> DeploymentFile:
    data = guard.read_keys(path, "keys, `applications` among them", aliases=False)
    if "policy" in data:
        data["policy"] = own.beside(data["policy"], path.parent)
    return validated(DeploymentFile, data, str(path))


def _refuse_twice(what: str, names: list[Any]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{what.format(name)} is given twice")
