"""`twinbed agent`: carries out a controller's decisions on one host.

For: the verbs' options. Not for: the agent itself (testbed.containers.remote).
"""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.controller import check_address, log_to_standard_error, stop_on_signals
from lab.cli.exporting import MetricsOption, Place, place, served
from lab.cli.options import argument, option, write
from twinbed import BackendError, ScenarioError

if TYPE_CHECKING:
    from testbed.containers.ports import TelemetrySource
    from testbed.containers.remote.agent import Agent
    from testbed.containers.remote.certificates import Identity
    from testbed.containers.remote.place import CgroupPlace

DEFAULT_IDENTITY = Path("/etc/twinbed/agent.pem")

IdentityOption = Annotated[Path, option("FILE", "This host's certificate and key.", "--identity")]

app = typer.Typer(help="Carry out a controller's decisions on this host.", no_args_is_help=True)


@app.command("enroll")
def enroll(
    bundle: Annotated[
        Path, argument("FILE", "The file that `twinbed controller enroll` made for this host.")
    ],
    identity: IdentityOption = DEFAULT_IDENTITY,
) -> None:
    """Check the certificate that was made for this host and store it, readable by root only."""
    from testbed.containers.remote import certificates

    certificate = certificates.load(bundle)
    if certificate.name == certificates.SERVER_NAME:
        raise ScenarioError(
            f"{bundle}: the controller's own certificate; make an agent's: twinbed controller enroll NAME"
        )
    identity.parent.mkdir(parents=True, exist_ok=True)
    certificates.write_private(identity, certificate.bundle())
    write(f"{identity}: agent {certificate.name}, good until {certificate.expires:%Y-%m-%d}\n")


@app.command("run")
def run(
    controller: Annotated[str, option("HOST:PORT", "Address of the controller.")],
    name: Annotated[
        str | None, option("NAME", "Name of this agent. It must be the certificate's, which is the default.")
    ] = None,
    identity: IdentityOption = DEFAULT_IDENTITY,
    logs: Annotated[
        Path | None,
        option("FOLDER", "Keep the output of the commands in FOLDER/NAME.log. Default: discard it."),
    ] = None,
    metrics: MetricsOption = None,
) -> None:
    """Run this host's agent until Ctrl-C or SIGTERM, which also ends the containers that it started. Needs
    root and cgroups.

    If the agent ends in any other way, its containers keep running with their limits, and the next agent of
    the same name takes them over. On SIGHUP it reads its certificate again and connects with it.
    """
    import asyncio

    from testbed.containers.cgroup.drivers import detect
    from testbed.containers.remote import certificates
    from testbed.containers.remote.place import CgroupPlace

    check_address(controller, "--controller")
    where = place(metrics)
    own = certificates.load(identity)
    if name not in (None, own.name):
        raise ScenarioError(f"--name {name}: the certificate in {identity} is of agent {own.name}")
    groups = CgroupPlace(own.name, detect())
    log_to_standard_error()
    try:
        asyncio.run(_run(controller, own, identity, groups, logs, where))
    finally:
        groups.close()


async def _run(
    controller: str,
    own: Identity,
    identity: Path,
    groups: CgroupPlace,
    logs: Path | None,
    where: Place | None,
) -> None:
    import asyncio

    from prometheus_client import CollectorRegistry

    from testbed.containers.attach.audit import Audit
    from testbed.containers.exporting.reading import LoopReader, histogram
    from testbed.containers.remote.agent import Agent
    from testbed.containers.remote.hosting import Hosting
    from testbed.containers.remote.metrics import of_agent
    from testbed.containers.remote.origin import Watcher

    watcher = Watcher(groups.root, groups.find)
    agent = Agent(controller, own, Hosting(groups, logs, Audit()), _telemetry, watcher)
    registry, labels = CollectorRegistry(), (own.name,)
    registry.register(LoopReader(lambda: of_agent(agent), asyncio.get_running_loop()))
    agent.figures.on_order = histogram("twinbed_agent_order_seconds", registry, labels)
    agent.hosting.on_quota = histogram("twinbed_agent_quota_write_seconds", registry, labels)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, rotate, agent, own.name, identity)
    async with served(registry, where):
        await agent.run(stop_on_signals())


def rotate(agent: Agent, name: str, identity: Path) -> None:
    """Make the agent use the certificate in the file, if it is valid and of the agent's name. Log the
    result."""
    from testbed.containers.remote import certificates

    log = logging.getLogger("twinbed.agent")
    try:
        own = certificates.load(identity)
    except BackendError as error:
        log.warning("not reloaded: %s; the former certificate stays in use", error)
        return
    if own.name != name:
        log.warning(
            "not reloaded: %s is of agent %s; the former certificate stays in use", identity, own.name
        )
        return
    log.info("reloaded: the certificate is good until %s", f"{own.expires:%Y-%m-%d}")
    agent.rotate(own)


def _telemetry() -> TelemetrySource:
    """Return the kernel's hooks if this kernel admits them, else polling."""
    from testbed.containers.cgroup.group import QUOTA_PERIOD_US
    from testbed.containers.cgroup.hooks import HookTelemetry
    from testbed.containers.cgroup.polling import Polling

    log = logging.getLogger("twinbed.agent")
    try:
        source: TelemetrySource = HookTelemetry(QUOTA_PERIOD_US / 1e6)
    except BackendError as error:
        log.info("telemetry by polling: %s", error)
        return Polling(QUOTA_PERIOD_US / 1e6)
    log.info("telemetry by kernel hooks")
    return source
