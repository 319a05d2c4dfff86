"""Messages of any layout become columns, and the kernel's refusals are reported."""

from __future__ import annotations

import errno
import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fabric.netlink import HEADER, Inside, Socket, alike, attribute, messages_of, request
from testbed.fabric.rules.ingress import filters
from tests.testbed.fabric.small_host import REPRESENTOR, small_host

NESTED = {(7,): Inside.ATTRIBUTES, (9,): Inside.HOPS}

words = st.integers(0, 2**32 - 1)
flat = st.lists(st.tuples(st.integers(1, 6), words), max_size=4)
hops = st.lists(st.tuples(st.integers(1, 90), words), max_size=3)


def message(family: int, plain, inner, hop) -> bytes:
    """A message with attributes of one word, some of them nested in 7, and next hops in 9."""
    body = struct.pack("=I", family)
    body += b"".join(attribute(kind, struct.pack("=I", value)) for kind, value in plain)
    if inner:
        body += attribute(7, b"".join(attribute(kind, struct.pack("=I", value)) for kind, value in inner))
    if hop:
        packed = (
            struct.pack("=HBBI", 16, 0, 0, dev) + attribute(5, struct.pack("=I", gw)) for dev, gw in hop
        )
        body += attribute(9, b"".join(packed))
    return HEADER.pack(HEADER.size + len(body), 24, 0, 0, 0) + body


def first_of_each(pairs, path=()):
    first = {}
    for kind, value in pairs:
        first.setdefault((*path, kind), value)
    return first


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(words, flat, flat, hops), max_size=12))
def test_every_message_is_in_one_layout_and_its_words_are_where_they_were(drawn) -> None:
    messages = messages_of([message(*parts) for parts in drawn])
    seen = {}
    for layout in alike(messages, 1, NESTED):
        for row, family in enumerate(layout.header(0).tolist()):
            columns = {path: int(layout.word(*path)[row]) for path in layout.paths}
            seen.setdefault(family, []).append(
                {path: columns[path] for path in columns if path not in NESTED}
            )
    assert sum(map(len, seen.values())) == len(drawn)
    for family, plain, inner, hop in drawn:
        wanted = first_of_each(plain) | first_of_each(inner, (7,))
        for number, (device, through) in enumerate(hop):
            wanted |= {(9, number): device, (9, number, 5): through}
        assert wanted in seen[family]


@given(st.lists(st.lists(st.integers(16, 32), max_size=4), max_size=6))
def test_a_message_begins_where_the_one_before_it_ends(bodies) -> None:
    # Whatever is in them, lengths of messages too.
    made = [
        HEADER.pack(HEADER.size + 4 * len(body), 24, 0, 0, 0) + struct.pack(f"={len(body)}I", *body)
        for body in bodies
    ]
    wanted = np.cumsum([0, *(len(packed) // 4 for packed in made)])[:-1]
    assert messages_of(made).starts.tolist() == wanted.tolist()


def test_an_attribute_that_is_not_there_is_what_was_asked_for() -> None:
    (layout,) = alike(messages_of([message(3, [(1, 5)], [], [])]), 1, NESTED)
    assert layout.word(2, missing=-1).tolist() == [-1]
    assert layout.text(0, 2) == ""


def test_an_address_is_read_in_the_networks_order() -> None:
    body = struct.pack("=I", 0) + attribute(2, bytes.fromhex("02000000ab01"))
    (layout,) = alike(messages_of([request(28, 0, body)]), 1, {})
    assert layout.mac(2).tolist() == [0x02000000AB01]


@pytest.mark.root
def test_what_the_kernel_refuses_is_raised_and_said() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with small_host(), Socket() as netlink:
        with pytest.raises(OSError, match="Invalid argument"):
            netlink.dump(30, struct.pack("=BxxxiHBB", 7, 0, 1, 0, 0))
        # The socket is as good as before.
        assert len(filters(netlink, REPRESENTOR).starts) == 0
        nobody = struct.pack("=BxHiII", 0, 0, 4711, 0, 0)
        both = request(17, 0, nobody, 0) + request(17, 0, nobody, 1)
        assert netlink.change(both, 2) == [(0, errno.ENODEV), (1, errno.ENODEV)]


def test_columns_are_whole_numbers() -> None:
    (layout,) = alike(messages_of([message(1, [(1, 2**32 - 1)], [], [])]), 1, {})
    assert layout.word(1).dtype == np.int64
    assert layout.word(1).tolist() == [2**32 - 1]
