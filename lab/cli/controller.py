"""`twinbed controller`: decides for containers on several hosts, and makes certificates.

For: the verbs' options. Not for: the deployment's file (lab.containers.input.deployment) or the controller
itself (testbed.containers.remote).
"""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.exporting import MetricsOption, Place, place, served
from lab.cli.options import Format, FormatOption, NoProgressOption, argument, emit, flag, option, write
from lab.runs.formats import Column, Result
from twinbed import ScenarioError
from twinbed.text import printable

if TYPE_CHECKING:
    import asyncio

    from lab.containers.input.deployment import DeploymentPlan

DEFAULT_LISTEN = "0.0.0.0:7117"
DEFAULT_PKI = Path("/etc/twinbed/controller")

PkiOption = Annotated[Path, option("FOLDER", "Folder of the authority, readable by its owner only.", "--pki")]
DaysOption = Annotated[int, option("N", "Days until the certificate expires.", "--days", min=1, max=3650)]

_ENROLLED = (
    Column("agent", "Agent"),
    Column("file", "File"),
    Column("expires", "Good until"),
    Column("serial", "Serial number"),
)

app = typer.Typer(help="Decide for containers on several hosts.", no_args_is_help=True)


@app.command("init")
def init(pki: PkiOption = DEFAULT_PKI, days: DaysOption = 365) -> None:
    """Make the authority and the controller's certificate. Run it again to renew the certificate only."""
    from testbed.containers.remote import certificates

    identity = certificates.init(pki, days=days)
    write(f"{pki}: the controller's certificate is good until {identity.expires:%Y-%m-%d}\n")


@app.command("enroll")
def enroll(
    name: Annotated[str, argument("NAME", "Name of the agent: letters, digits, - and _.")],
    out: Annotated[Path | None, option("FILE", "File to write. Default: NAME.pem in this folder.")] = None,
    pki: PkiOption = DEFAULT_PKI,
    days: DaysOption = 365,
    replace: Annotated[bool, flag("--replace", "Replace FILE if it exists.")] = False,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Make an agent's certificate.

    The file contains its key: copy it to the host over a safe channel, run `twinbed agent enroll FILE` there,
    and delete it here.
    """
    from testbed.containers.remote import certificates, revocations

    path = out or Path(f"{name}.pem")
    if path.exists() and not replace:
        raise ScenarioError(f"{path}: exists already; name another file with --out, or use --replace")
    identity = certificates.enroll(pki, name, days=days)
    serial = certificates.serial_of(identity.certificate)
    revocations.note_issued(pki, name, serial)
    certificates.write_private(path, identity.bundle())
    expires = f"{identity.expires:%Y-%m-%d}"
    row = {"agent": name, "file": str(path), "serial": f"{serial:x}", "expires": expires}
    emit(Result(_ENROLLED, (row,)), form)


@app.command("revoke")
def revoke(
    which: Annotated[
        str, argument("NAME|SERIAL", "Agent whose certificates are all revoked, or serial number of one.")
    ],
    pki: PkiOption = DEFAULT_PKI,
) -> None:
    """Revoke an agent's certificates. This cannot be undone.

    A running controller ends the agent's call. The agent's containers keep their limits.
    """
    from testbed.containers.remote import revocations

    serials = revocations.revoke(pki, which)
    write(f"{pki}: revoked certificates of {which}: {len(serials)}\n")


@app.command("monitoring")
def monitoring(
    folder: Annotated[Path, argument("FOLDER", "Folder for the two files, made if needed.")] = Path(),
) -> None:
    """Write the Grafana dashboard and the alert rules for Prometheus.

    They use the metrics that controllers and agents serve with --metrics.
    """
    from lab.connect import grafana

    for path in grafana.write_to(folder):
        write(f"{path}\n")


@app.command("run")
def run(
    deployment: Annotated[Path, argument("CONFIG.yaml", "Applications, global limits, containers, policy.")],
    listen: Annotated[str, option("HOST:PORT", "Address for agents, TCP and UDP.")] = DEFAULT_LISTEN,
    metrics: MetricsOption = None,
    pki: PkiOption = DEFAULT_PKI,
) -> None:
    """Run a deployment until Ctrl-C. Agents keep all limits while no controller runs.

    On SIGHUP it reads its certificate and the revocations again.
    """
    import asyncio

    from lab.containers.input.deployment import load
    from testbed.containers.remote import certificates

    plan = load(deployment)
    check_address(listen, "--listen")
    certificates.controller_identity(pki)
    where = place(metrics)
    log_to_standard_error()
    asyncio.run(_serve(plan, listen, where, pki))


async def _serve(plan: DeploymentPlan, listen: str, where: Place | None, pki: Path) -> None:
    import asyncio

    from prometheus_client import CollectorRegistry

    from testbed.containers.cgroup.group import QUOTA_PERIOD_US
    from testbed.containers.exporting.reading import LoopReader, histogram
    from testbed.containers.remote import certificates
    from testbed.containers.remote.controller import Controller
    from testbed.containers.remote.metrics import of_controller
    from testbed.containers.remote.revocations import Revocations

    registry = CollectorRegistry()
    controller = Controller(
        plan.deployment,
        plan.allocator,
        lambda: certificates.controller_identity(pki),
        revoked=Revocations(pki),
        on_latency=histogram("twinbed_decision_latency_seconds", registry),
    )
    registry.register(LoopReader(lambda: of_controller(controller), asyncio.get_running_loop()))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, controller.reload)
    log = logging.getLogger("twinbed.controller")

    def ready(port: int) -> None:
        said = "listening on port %d of %s; policy %s; agents report every %g s"
        log.info(said, port, listen.rpartition(":")[0], plan.policy, QUOTA_PERIOD_US / 1e6)

    async with served(registry, where):
        await controller.run(listen, stop_on_signals(), ready)


def check_address(text: str, option: str) -> None:
    """Raise ScenarioError, which names the option, for text other than HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ScenarioError(f"{option} {text}: expected HOST:PORT, e.g. 10.0.0.1:7117")


def stop_on_signals() -> asyncio.Event:
    """Return an event that Ctrl-C or SIGTERM sets. Call it inside the running loop."""
    import asyncio

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def log_to_standard_error() -> None:
    """Log one line per event, because the verb runs until it is stopped."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Printable("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("twinbed")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


class _Printable(logging.Formatter):
    """Formats a message as a line without control characters, because names come from agents."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        return printable(super().formatMessage(record))
