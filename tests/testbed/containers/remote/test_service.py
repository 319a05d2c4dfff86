"""The reliable channel's credentials: replaced after a renewal, and never without one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest

from testbed.containers.remote import certificates, service
from testbed.containers.remote.messages_pb2 import Wanted


async def attend(_requests: Any, _context: Any) -> None:
    """No call comes."""


def shown(port: int) -> bytes:
    """The certificate that the server shows to a new connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        context.wrap_socket(plain) as connection,
    ):
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


async def test_a_connection_changes_the_credentials_only_after_a_renewal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC frees the credentials that a fetch replaces, while another thread may be using them for its own
    handshake: https://github.com/grpc/grpc/issues/36693."""
    fetches: list[Any] = []
    make = grpc.dynamic_ssl_server_credentials

    def made(initial: Any, fetch: Any, **options: Any) -> Any:
        fetches.append(fetch)
        return make(initial, fetch, **options)

    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", made)
    certificates.init(tmp_path)
    service.server(attend, lambda: certificates.controller_identity(tmp_path))
    (fetch,) = fetches
    assert [fetch() for _ in range(3)] == [None, None, None]
    certificates.init(tmp_path)
    assert fetch() is not None
    assert fetch() is None


async def test_a_renewed_certificate_needs_no_restart(tmp_path: Path) -> None:
    certificates.init(tmp_path)
    server, credentials = service.server(attend, lambda: certificates.controller_identity(tmp_path))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        first, again = [await asyncio.to_thread(shown, port) for _ in range(2)]
        certificates.init(tmp_path)
        renewed = await asyncio.to_thread(shown, port)
    finally:
        await server.stop(0)
    assert first == again
    assert renewed != first


@pytest.mark.parametrize(
    ("sizes", "split"),
    [
        ([], []),
        ([40, 40], [[40, 40]]),
        ([40, 41], [[40], [41]]),
        ([30, 30, 30, 100, 30], [[30, 30], [30], [100], [30]]),
    ],
)
def test_a_piece_has_as_many_entries_as_fit(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], split: list[list[int]]
) -> None:
    monkeypatch.setattr(service, "PIECE_BYTES", 80)
    entries = [Wanted(name="x" * (size - 2)) for size in sizes]
    pieces = [[entry.ByteSize() for entry in piece] for piece in service.pieces(entries)]
    assert pieces == split
