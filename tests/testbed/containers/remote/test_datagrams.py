"""Telemetry on the wire: what was sealed arrives, and nothing else does."""

from __future__ import annotations

import hmac
import logging
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.containers.ports import Records
from testbed.containers.remote.datagrams import (
    MAX_BYTES,
    MAX_RECORDS,
    MOST_BYTES,
    MOST_CORES,
    RECORD,
    WINDOW,
    Gate,
    Sealer,
    unpack,
)
from testbed.containers.remote.refusals import Refusals

KEY, SESSION = b"k" * 32, 0x1234_5678_9ABC
LOG = logging.getLogger("tests.datagrams")


def gate() -> Gate:
    made = Gate(Refusals(LOG))
    made.open(SESSION, KEY)
    return made


def refused(of: Gate) -> dict[str, int]:
    return dict(of.refusals.counts)


def records(count: int = 1, quota_cores: float = 0.5) -> Records:
    ones = np.ones(count)
    return Records(
        ids=np.arange(count, dtype=np.int64),
        end_ns=np.full(count, 123_456_789_000, np.int64),
        quota_cores=ones * quota_cores,
        unused_cores=ones * (min(0.2, quota_cores) if quota_cores < np.inf else 0.0),
        throttled=np.arange(count) % 2 == 1,
        usage_cores=ones * 0.3,
        memory_bytes=np.full(count, 7 << 30, np.int64),
        throttled_s=ones * 0.0125,
        idle=np.arange(count) % 3 == 0,
    )


@given(count=st.integers(0, 3 * MAX_RECORDS + 1), quota=st.sampled_from([0.01, 0.5, 63.99, np.inf]))
@settings(max_examples=30, deadline=None)
def test_what_was_sealed_arrives_as_it_was(count: int, quota: float) -> None:
    here, sent = gate(), records(count, quota)
    datagrams = Sealer(SESSION, KEY).seal(sent, 99)
    assert len(datagrams) == -(-count // MAX_RECORDS)
    assert all(len(datagram) <= MAX_BYTES for datagram in datagrams)
    batches = [here.receive(datagram, "h") for datagram in datagrams]
    for name in Records.__dataclass_fields__:
        if batches:
            got, possible = unpack(batch.body for batch in batches if batch is not None)
            assert possible.all()
            np.testing.assert_allclose(
                getattr(got, name).astype(float), getattr(sent, name).astype(float), atol=1e-5
            )
    assert not refused(here)
    assert here.lost == 0


@pytest.mark.parametrize(
    ("name", "most"),
    [("quota_cores", MOST_CORES), ("usage_cores", MOST_CORES), ("memory_bytes", MOST_BYTES)],
)
def test_the_largest_machine_is_believed_and_a_larger_one_is_not(name: str, most: int) -> None:
    sent = records(2)
    getattr(sent, name)[:] = [most, most * 1.001]
    (sealed,) = Sealer(SESSION, KEY).seal(sent, 1)
    batch = gate().receive(sealed, "h")
    assert batch is not None
    assert unpack([batch.body])[1].tolist() == [True, False]


@given(data=st.binary(max_size=2 * MAX_BYTES))
@settings(max_examples=150, deadline=None)
def test_noise_is_never_accepted_and_never_an_exception(data: bytes) -> None:
    here = gate()
    assert here.receive(data, "h") is None
    assert sum(refused(here).values()) == 1


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_datagram_with_anything_changed_is_never_accepted(data: st.DataObject) -> None:
    here = gate()
    (sealed,) = Sealer(SESSION, KEY).seal(records(3), 1)
    how = data.draw(st.sampled_from(["flip", "cut", "grow"]))
    if how == "flip":
        bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        sealed = bytes(changed)
    elif how == "cut":
        sealed = sealed[: data.draw(st.integers(0, len(sealed) - 1))]
    else:
        sealed += data.draw(st.binary(min_size=1, max_size=1500))
    assert here.receive(sealed, "h") is None
    assert sum(refused(here).values()) == 1


@given(body=st.binary(min_size=0, max_size=1400), count=st.integers(0, 65535))
@settings(max_examples=150, deadline=None)
def test_nonsense_under_a_right_signature_is_no_exception(body: bytes, count: int) -> None:
    header = struct.pack("<2sBBHHQQq", b"TB", 1, 0, count, 0, SESSION, 1, 5)
    signed = header + body + hmac.digest(KEY, header + body, "sha256")[:16]
    here = gate()
    batch = here.receive(signed, "h")
    if batch is not None:
        records, possible = unpack([batch.body])
        assert len(records.ids) == batch.records == count
        assert (records.quota_cores[possible] > 0).all()
        assert (records.memory_bytes[possible] >= 0).all()
        assert (records.unused_cores[possible] < np.inf).all()
    else:
        assert sum(refused(here).values()) == 1


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({}, ""),
        ({"magic": b"TX"}, "foreign"),
        ({"version": 2}, "version"),
        ({"zero": 1}, "malformed"),
        ({"zeros": 1}, "malformed"),
        ({"count": 0}, "malformed"),
        ({"count": 0, "records": 0}, "malformed"),
        ({"count": 2}, "malformed"),
        ({"sequence": 0}, "malformed"),
    ],
)
def test_a_header_with_anything_else_is_refused_under_a_right_signature(
    changed: dict[str, int], kind: str
) -> None:
    said = {"magic": b"TB", "version": 1, "zero": 0, "count": 1, "zeros": 0, "session": SESSION}
    said |= {"sequence": 1, "sent_ns": 5, "records": 1} | changed
    body = bytes(44 * said.pop("records"))
    body = struct.pack("<2sBBHHQQq", *said.values()) + body
    here = gate()
    here.receive(body + hmac.digest(KEY, body, "sha256")[:16], "h")
    assert refused(here) == ({kind: 1} if kind else {})
    assert here.received == (not kind)


def test_no_record_has_left_more_than_its_quota_unused() -> None:
    rows = np.zeros(2, RECORD)
    rows["quota_us"], rows["unused_us"] = [50_000, 2**32 - 1], 70_000
    said, possible = unpack([rows.tobytes()])
    assert said.unused_cores.tolist() == [0.5, 0.0]
    assert possible.all(), "of the first container, at the clock's zero, without memory"


def test_replayed_late_and_forged_datagrams_are_refused_by_kind() -> None:
    here, sealer = gate(), Sealer(SESSION, KEY)
    sealed = [sealer.seal(records(), 1)[0] for _ in range(WINDOW + 2)]
    assert here.receive(sealed[1], "h") is not None
    assert here.receive(sealed[1], "h") is None  # the same again
    assert here.receive(sealed[0], "h") is not None  # late, but new
    assert here.receive(sealed[0], "h") is None
    assert here.receive(sealed[-1], "h") is not None
    assert here.receive(sealed[-1], "h") is None
    assert here.receive(sealed[1], "h") is None  # by now outside the window
    assert here.receive(sealed[2], "h") is not None  # the last inside it
    assert here.receive(sealed[2], "h") is None
    (forged,) = Sealer(SESSION, b"x" * 32).seal(records(), 1)
    (foreign,) = Sealer(SESSION + 1, KEY).seal(records(), 1)
    assert here.receive(forged, "h") is None
    assert here.receive(foreign, "h") is None
    for size in (0, MAX_BYTES + 1):
        assert here.receive(b"T" * size, "h") is None
    others = dict.fromkeys(["too old", "forged", "foreign", "malformed", "oversized"], 1)
    assert refused(here) == {"replayed": 4} | others


def test_lost_datagrams_are_counted_and_late_ones_are_lost_no_more() -> None:
    here, sealer = gate(), Sealer(SESSION, KEY)
    sealed = [sealer.seal(records(), 1)[0] for _ in range(10)]
    for datagram in (sealed[0], sealed[4], sealed[9]):
        here.receive(datagram, "h")
    assert (here.received, here.lost) == (3, 7)
    for seen in (0, 4, 9):
        assert here.receive(sealed[seen], "h") is None
    here.receive(sealed[2], "h")
    assert (here.received, here.lost) == (4, 6)
    here.close(SESSION)
    assert (here.received, here.lost) == (4, 6)
    assert here.receive(sealed[5], "h") is None


def test_a_flood_of_refusals_is_one_log_line_per_kind_and_second(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    refusals = Refusals(LOG, lambda: now)
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            refusals.add("forged", "x")
            refusals.add("replayed", "y")
        now += 1.0
        refusals.add("forged", "x")
    assert [entry.getMessage() for entry in caplog.records] == [
        "refused, forged: x",
        "refused, replayed: y",
        "refused, forged: x (999 more since the last line)",
    ]
    assert refusals.counts == {"forged": 1001, "replayed": 1000}
