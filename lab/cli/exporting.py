"""The option --metrics of every long-running verb: serves its Prometheus metrics.

For: the option and its address. Not for: the port or the metrics (testbed.containers.exporting).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated

from lab.cli.options import option
from twinbed import ScenarioError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from testbed.containers.exporting.reading import Series

Place = tuple[str, int]
"""Host, without brackets, and port."""

MetricsOption = Annotated[
    str | None,
    option(
        "[HOST:]PORT",
        "Serve Prometheus metrics at this address, e.g. 9117 or [::1]:9117. Default HOST: 127.0.0.1.",
        "--metrics",
    ),
]


def place(text: str | None) -> Place | None:
    """Return the address for metrics, None if they are not served. Raises ScenarioError."""
    if text is None:
        return None
    host, _, port = text.rpartition(":") if ":" in text else ("127.0.0.1", "", text)
    bracketed = host.startswith("[") and host.endswith("]")
    if not host or (":" in host and not bracketed) or not (port.isascii() and port.isdigit()):
        raise ScenarioError(
            f"--metrics {text}: expected PORT, HOST:PORT or [IPV6]:PORT, e.g. 9117 or [::1]:9117"
        )
    if int(port) > 65535:
        raise ScenarioError(f"--metrics {text}: a port is at most 65535")
    return (host[1:-1] if bracketed else host), int(port)


@contextmanager
def exported(read: Callable[[], list[Series]], where: Place | None) -> Iterator[None]:
    """Serve the result of `read` inside the `with` block. Raises the errors of `served`."""
    if where is None:
        yield
        return
    from prometheus_client import CollectorRegistry

    from testbed.containers.exporting.reading import Reader
    from testbed.containers.exporting.serving import serve

    registry = CollectorRegistry()
    registry.register(Reader(read))
    stop = serve(registry, *where)
    try:
        yield
    finally:
        stop()


@asynccontextmanager
async def served(registry: CollectorRegistry, where: Place | None) -> AsyncIterator[None]:
    """Serve the metrics inside the block. Raises BackendError if the address cannot be used."""
    import asyncio

    from testbed.containers.exporting.serving import serve

    stop = None if where is None else serve(registry, *where)
    try:
        yield
    finally:
        if stop is not None:
            # A reader may be waiting for this loop.
            await asyncio.to_thread(stop)
