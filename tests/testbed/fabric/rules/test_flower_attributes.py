"""A rule as a netlink message: decoding gives what was encoded, field by field."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from control.reconciler.model import Rules
from testbed.fabric.netlink import Messages, alike
from testbed.fabric.rules.flower import INSIDE, rules_of
from testbed.fabric.rules.flower_attributes import Tunnelling, filter_message
from testbed.fabric.rules.ingress import TC_WORDS
from tests.testbed.fabric.rules.decoded import read

bytes_of_a_mac = st.integers(0, 2**48 - 1).map(lambda number: number.to_bytes(6, "big").hex(":"))
addresses = st.ip_addresses(v=4).map(str)
indices = st.integers(1, 2**31)

rules = st.builds(
    Tunnelling,
    mac=bytes_of_a_mac,
    vni=st.integers(1, 2**24 - 1),
    local=addresses,
    remote=addresses,
    port=st.integers(1, 2**16 - 1),
    way_out=indices,
    action=indices,
    redirection=indices,
    cookie=st.binary(min_size=1, max_size=16),
)


def message(rule: Tunnelling) -> filter_message:
    made = filter_message()
    made["attrs"] = [("TCA_KIND", "flower"), ("TCA_OPTIONS", rule.options())]
    made.encode()
    return made


def rules_in(rule: Tunnelling) -> Rules:
    """Return the rule as our reader returns it."""
    words = np.frombuffer(bytes(message(rule).data), np.uint32)
    (layout,) = alike(Messages(words, np.zeros(1, np.int64)), TC_WORDS, INSIDE)
    rules = rules_of(layout)
    assert rules is not None
    return rules


@given(rules)
def test_what_is_encoded_is_decoded(rule: Tunnelling) -> None:
    decoded = filter_message(bytes(message(rule).data))
    decoded.decode()
    assert read(decoded) == rule


@given(rules)
def test_what_is_encoded_is_read_in_columns(rule: Tunnelling) -> None:
    read_back = rules_in(replace(rule, cookie=(0xB0B).to_bytes(8, "big")))
    columns = {
        name: getattr(read_back, name).tolist() for name in ("mac", "vni", "remote", "action", "cookie")
    }
    assert columns == {
        "mac": [int(rule.mac.replace(":", ""), 16)],
        "vni": [rule.vni],
        "remote": [int(ipaddress.IPv4Address(rule.remote))],
        "action": [rule.action],
        "cookie": [0xB0B],
    }


@given(rules, st.integers(1, 2**8 - 1), st.integers(1, 16).filter(lambda size: size != 8))
def test_a_cookie_of_another_length_is_nobodys_we_know(rule: Tunnelling, owner: int, size: int) -> None:
    other = replace(rule, cookie=owner.to_bytes(16, "big")[-size:])
    assert rules_in(other).cookie.tolist() == [-1]
