"""Parsing an overheard BFD packet: what a receiver must discard is ignored."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.fabric import BfdState, BfdTimers
from control.fast_path.bfd import PORT, parse

SOURCE = 0xAC100000


def packet(
    *,
    state=BfdState.UP,
    multiplier=5,
    interval_us=50_000,
    ttl=255,
    port=PORT,
    protocol=17,
    version=1,
    length=24,
    mine=7,
    yours=9,
    flags=0,
    options=b"",
) -> bytes:
    body = struct.pack(
        "!BBBBIIIII", version << 5, state << 6 | flags, multiplier, length, mine, yours, interval_us, 0, 0
    )
    udp = struct.pack("!HHHH", 49152, port, 8 + len(body), 0)
    first = 0x45 + len(options) // 4
    total = 20 + len(options) + len(udp) + len(body)
    addresses = struct.pack("!II", SOURCE, SOURCE + 1)
    return (
        struct.pack("!BBHHHBBH", first, 0, total, 0, 0, ttl, protocol, 0) + addresses + options + udp + body
    )


def test_a_packet_says_who_sent_it_and_when_its_silence_is_a_fault() -> None:
    control = parse(packet(options=b"\x01\x01\x01\x00"))
    assert control is not None
    assert (control.source, control.state, control.timers.multiplier) == (SOURCE, BfdState.UP, 5)
    assert control.timers.interval_s == pytest.approx(0.05)


def test_an_end_that_wants_fewer_packets_hears_as_many_of_them_before_a_fault() -> None:
    assert BfdTimers(0.05, 3).received_at_least(0.3) == BfdTimers(0.3, 3)
    assert BfdTimers(0.05, 3).received_at_least(0.01) == BfdTimers(0.05, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": 254},
        {"port": PORT + 1},
        {"protocol": 6},
        {"version": 0},
        {"length": 26},
        {"multiplier": 0},
        {"mine": 0},
        {"yours": 0},
        {"flags": 0x04},
        {"flags": 0x01},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_a_receiver_discards_is_not_heard(wrong) -> None:
    assert parse(packet(**wrong)) is None


def test_an_end_that_is_down_does_not_know_the_other_yet() -> None:
    assert parse(packet(state=BfdState.DOWN, yours=0)) is not None


@given(st.binary(max_size=100))
def test_anything_may_arrive(data) -> None:
    parse(data)


@given(st.integers(0, 52))
def test_a_packet_cut_short_is_none(length) -> None:
    assert parse(packet()[: min(length, 51)]) is None
