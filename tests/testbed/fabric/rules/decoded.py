"""Reads a rule of tc's flower from a decoded message.

For: tests in the VM, too, where Hypothesis takes seconds to load.
"""

from __future__ import annotations

from testbed.fabric.rules.flower_attributes import Tunnelling, filter_message


def read(message: filter_message) -> Tunnelling:
    """Return the rule in a decoded message."""
    options = message.get_attr("TCA_OPTIONS")
    first, second = (options.get_attr("TCA_FLOWER_ACT").get_attr(f"TCA_ACT_PRIO_{n}") for n in (1, 2))
    assert [action.get_attr("TCA_ACT_KIND") for action in (first, second)] == ["tunnel_key", "mirred"]
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
