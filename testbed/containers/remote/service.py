"""The reliable channel: one gRPC call per agent with mutual TLS, open for as long as the agent runs.

For: the call's name and messages, long lists in pieces, credentials and channel options of both sides. Not
for: the messages (messages.proto), nor their use (controller.py, agent.py).
docs/decisions/0013-one-stream-per-agent.md explains why it has generic handlers and no generated stubs.

Both sides wait with `asyncio.timeout`. Python 3.11's `asyncio.wait_for` forgets a cancellation that comes
together with a message. A call that is over would then continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from testbed.containers.remote.certificates import SERVER_NAME, Identity
from testbed.containers.remote.messages_pb2 import Order, Report

PROTOCOL_VERSION = 4
HEARTBEAT_S = 1.0
"""Longest time between two messages of each side, s."""

SILENCE_S = 3.5
"""Time of silence after which the other side counts as lost, s: three heartbeats, of which one may be
late."""

CONNECT_S = 5.0
"""Longest wait of an agent for TCP and TLS, s. gRPC itself waits 20 s for a silent controller."""

PIECE_BYTES = 256 << 10
"""Largest piece of a long list, bytes, well below a message's largest size. One entry may be larger."""

_SERVICE, _METHOD = "twinbed.Control", "Attend"
_MAX_MESSAGE_BYTES = 1 << 20
MOST_CALLS = 8
"""Largest number of calls on one connection. An agent has one, and its next call needs another connection."""

_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
)

_Entry = TypeVar("_Entry", bound=Message)


def _decoder(kind: Callable[[], Any]) -> Callable[[bytes], Any]:
    """Return a decoder that returns None for invalid bytes. The other side then gets an error."""

    def decode(data: bytes) -> Any:
        message = kind()
        try:
            message.ParseFromString(data)
        except DecodeError:
            return None
        return message

    return decode


def _encode_order(order: Order | bytes) -> bytes:
    return order if isinstance(order, bytes) else order.SerializeToString()


decode_report = _decoder(Report)
decode_order = _decoder(Order)


def server(
    attend: Callable[[Any, Any], Any], identity: Callable[[], Identity]
) -> tuple[grpc.aio.Server, grpc.ServerCredentials]:
    """Return a server that answers `attend(reports, context)`, and its credentials. identity: function called
    for each connection, so that a renewed certificate needs no restart."""
    handler = grpc.stream_stream_rpc_method_handler(attend, decode_report, _encode_order)
    made = grpc.aio.server(options=(*_OPTIONS, ("grpc.max_concurrent_streams", MOST_CALLS)))
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),))
    shown = identity()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """Return the server's new certificate, None if it is unchanged. gRPC frees a configuration that is
        replaced while another connection's handshake may use it, and crashes (its issue 36693). So it is
        replaced only after a renewal. gRPC calls this under a lock."""
        nonlocal shown
        own = identity()
        if own == shown:
            return None
        shown = own
        return _configuration(own)

    return made, grpc.dynamic_ssl_server_credentials(
        _configuration(shown), fetch, require_client_authentication=True
    )


def _configuration(own: Identity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(own.key, own.certificate)], root_certificates=own.authority
    )


def channel(address: str, identity: Identity) -> grpc.aio.Channel:
    """Return a connection to the controller at HOST:PORT. Nothing is sent before the first call."""
    credentials = grpc.ssl_channel_credentials(identity.authority, identity.key, identity.certificate)
    named = ("grpc.ssl_target_name_override", SERVER_NAME)
    # The agent itself reconnects, because a new TCP connection needs a new call and a Hello.
    own = ("grpc.use_local_subchannel_pool", 1)
    patience = ("grpc.min_reconnect_backoff_ms", int(1000 * CONNECT_S))
    return grpc.aio.secure_channel(address, credentials, options=(*_OPTIONS, named, own, patience))


def attend(connection: grpc.aio.Channel) -> Any:
    """Open the agent's call on a channel: reports are written to it, orders are read from it."""
    call = connection.stream_stream(
        f"/{_SERVICE}/{_METHOD}",
        request_serializer=Report.SerializeToString,
        response_deserializer=decode_order,
    )
    return call()


def pieces(entries: Iterable[_Entry]) -> Iterator[list[_Entry]]:
    """Yield the entries in order, in lists of at most PIECE_BYTES together. Receivers put them together."""
    piece: list[_Entry] = []
    size = 0
    for entry in entries:
        entry_bytes = entry.ByteSize()
        if piece and size + entry_bytes > PIECE_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += entry_bytes
    if piece:
        yield piece
