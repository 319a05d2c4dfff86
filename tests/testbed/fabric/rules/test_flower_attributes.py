"""A rule in netlink's words: what is encoded is what is decoded, field by field."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testbed.fabric.rules.flower_attributes import Tunnelling, filter_message

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


def read(message: filter_message) -> Tunnelling:
    """What a decoded message says."""
    options = message.get_attr("TCA_OPTIONS")
    first, second = (options.get_attr("TCA_FLOWER_ACT").get_attr(f"TCA_ACT_PRIO_{n}") for n in (1, 2))
    assert [each.get_attr("TCA_ACT_KIND") for each in (first, second)] == ["tunnel_key", "mirred"]
    assert options.get_attr("TCA_FLOWER_KEY_ETH_DST_MASK") == "ff:ff:ff:ff:ff:ff"
    tunnel, redirect = first.get_attr("TCA_ACT_OPTIONS"), second.get_attr("TCA_ACT_OPTIONS")
    return Tunnelling(
        mac=options.get_attr("TCA_FLOWER_KEY_ETH_DST"),
        vni=tunnel.get_attr("TCA_TUNNEL_KEY_ENC_KEY_ID"),
        local=tunnel.get_attr("TCA_TUNNEL_KEY_ENC_IPV4_SRC"),
        remote=tunnel.get_attr("TCA_TUNNEL_KEY_ENC_IPV4_DST"),
        port=tunnel.get_attr("TCA_TUNNEL_KEY_ENC_DST_PORT"),
        way_out=redirect.get_attr("TCA_MIRRED_PARMS")["ifindex"],
        action=tunnel.get_attr("TCA_TUNNEL_KEY_PARMS")["index"],
        redirection=redirect.get_attr("TCA_MIRRED_PARMS")["index"],
        cookie=first.get_attr("TCA_ACT_COOKIE"),
    )


@given(rules)
def test_what_is_encoded_is_decoded(rule: Tunnelling) -> None:
    found = filter_message(bytes(message(rule).data))
    found.decode()
    assert read(found) == rule
