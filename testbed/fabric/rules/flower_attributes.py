"""pyroute2 classes for flower rules: a match on Ethernet, and the actions tunnel_key and mirred.

For: encoding and decoding one message field by field, because pyroute2 0.9 knows neither cls_flower nor
act_tunnel_key.
Not for: thousands of rules (flower.py makes one message with these classes and copies it). Source:
linux/pkt_cls.h, linux/tc_act/tc_tunnel_key.h, linux/tc_act/tc_mirred.h. Names are the kernel's, as is usual
in pyroute2. Attributes that are not listed are decoded as raw data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyroute2.netlink import NLA_F_NESTED, nla, nlmsg

TC_ACT_PIPE, TC_ACT_STOLEN = 3, 4
TUNNEL_KEY_SET = 1
MIRRED_EGRESS_REDIRECT = 1
SKIP_HW, SKIP_SW, IN_HW, NOT_IN_HW = 1, 2, 4, 8
"""TCA_CLS_FLAGS_…"""

_MOST_ACTIONS = 32
_GENERIC = (("index", "I"), ("capab", "I"), ("action", "i"), ("refcnt", "i"), ("bindcnt", "i"))


class tunnel_key(nla):  # type: ignore[misc]  # noqa: N801
    """Options of the action tunnel_key, which sets the tunnel's addresses, key and port."""

    nla_flags = NLA_F_NESTED
    nla_map = (
        ("TCA_TUNNEL_KEY_UNSPEC", "none"),
        ("TCA_TUNNEL_KEY_TM", "hex"),
        ("TCA_TUNNEL_KEY_PARMS", "parms"),
        ("TCA_TUNNEL_KEY_ENC_IPV4_SRC", "ip4addr"),
        ("TCA_TUNNEL_KEY_ENC_IPV4_DST", "ip4addr"),
        ("TCA_TUNNEL_KEY_ENC_IPV6_SRC", "ip6addr"),
        ("TCA_TUNNEL_KEY_ENC_IPV6_DST", "ip6addr"),
        ("TCA_TUNNEL_KEY_ENC_KEY_ID", "be32"),
        ("TCA_TUNNEL_KEY_PAD", "none"),
        ("TCA_TUNNEL_KEY_ENC_DST_PORT", "be16"),
        ("TCA_TUNNEL_KEY_NO_CSUM", "uint8"),
        ("TCA_TUNNEL_KEY_ENC_OPTS", "hex"),
        ("TCA_TUNNEL_KEY_ENC_TOS", "uint8"),
        ("TCA_TUNNEL_KEY_ENC_TTL", "uint8"),
    )

    class parms(nla):  # type: ignore[misc]  # noqa: N801
        """struct tc_tunnel_key."""

        fields = (*_GENERIC, ("t_action", "i"))


class mirred(nla):  # type: ignore[misc]  # noqa: N801
    """Options of the action mirred, which sends a packet to another device."""

    nla_flags = NLA_F_NESTED
    nla_map = (
        ("TCA_MIRRED_UNSPEC", "none"),
        ("TCA_MIRRED_TM", "hex"),
        ("TCA_MIRRED_PARMS", "parms"),
    )

    class parms(nla):  # type: ignore[misc]  # noqa: N801
        """struct tc_mirred."""

        fields = (*_GENERIC, ("eaction", "i"), ("ifindex", "I"))


_ACTIONS = {"tunnel_key": tunnel_key, "mirred": mirred}


class action(nla):  # type: ignore[misc]  # noqa: N801
    """An action of a filter. TCA_ACT_COOKIE holds the owner's mark."""

    nla_flags = NLA_F_NESTED
    nla_map = (
        ("TCA_ACT_UNSPEC", "none"),
        ("TCA_ACT_KIND", "asciiz"),
        ("TCA_ACT_OPTIONS", "by_kind"),
        ("TCA_ACT_INDEX", "uint32"),
        ("TCA_ACT_STATS", "hex"),
        ("TCA_ACT_PAD", "none"),
        ("TCA_ACT_COOKIE", "cdata"),
        ("TCA_ACT_FLAGS", "hex"),
        ("TCA_ACT_HW_STATS", "hex"),
        ("TCA_ACT_USED_HW_STATS", "hex"),
        ("TCA_ACT_IN_HW_COUNT", "uint32"),
    )

    @staticmethod
    def by_kind(self: nla, *_: Any, **__: Any) -> type[nla]:  # as pyroute2 calls it
        """Return the pyroute2 class that decodes the options of this kind of action."""
        known: type[nla] = _ACTIONS.get(self.get_attr("TCA_ACT_KIND"), nla.hex)
        return known


class flower(nla):  # type: ignore[misc]  # noqa: N801
    """Options of the classifier flower."""

    nla_flags = NLA_F_NESTED
    nla_map = (
        (0, "TCA_FLOWER_UNSPEC", "none"),
        (1, "TCA_FLOWER_CLASSID", "uint32"),
        (2, "TCA_FLOWER_INDEV", "asciiz"),
        (3, "TCA_FLOWER_ACT", "actions"),
        (4, "TCA_FLOWER_KEY_ETH_DST", "l2addr"),
        (5, "TCA_FLOWER_KEY_ETH_DST_MASK", "l2addr"),
        (6, "TCA_FLOWER_KEY_ETH_SRC", "l2addr"),
        (7, "TCA_FLOWER_KEY_ETH_SRC_MASK", "l2addr"),
        (8, "TCA_FLOWER_KEY_ETH_TYPE", "be16"),
        (22, "TCA_FLOWER_FLAGS", "uint32"),
        (86, "TCA_FLOWER_IN_HW_COUNT", "uint32"),
    )

    class actions(nla):  # type: ignore[misc]  # noqa: N801
        """The filter's actions, in the order of execution."""

        nla_flags = NLA_F_NESTED
        nla_map = tuple(
            (number, f"TCA_ACT_PRIO_{number}", "action") for number in range(1, _MOST_ACTIONS + 1)
        )
        action = action


class filter_message(nlmsg):  # type: ignore[misc]  # noqa: N801
    """RTM_…TFILTER for the classifier flower."""

    prefix = "TCA_"
    fields = (
        ("family", "B"),
        ("pad1", "B"),
        ("pad2", "H"),
        ("index", "i"),
        ("handle", "I"),
        ("parent", "I"),
        ("info", "I"),
    )
    nla_map = (
        ("TCA_UNSPEC", "none"),
        ("TCA_KIND", "asciiz"),
        ("TCA_OPTIONS", "flower"),
    )
    flower = flower


@dataclass(frozen=True, slots=True)
class Tunnelling:
    """One rule: frames for `mac` go from `local` to `remote` (dotted IPv4) in `vni`, over `way_out`.

    port: UDP port of the tunnel. way_out: ifindex of the device. action, redirection: indices of the two
    shared actions. cookie: mark of the owner, at most 16 bytes.
    """

    mac: str
    vni: int
    local: str
    remote: str
    port: int
    way_out: int
    action: int
    redirection: int
    cookie: bytes

    def options(self) -> dict[str, Any]:
        """Return the rule in the form that `flower` encodes."""
        tunnel = {"index": self.action, "action": TC_ACT_PIPE, "t_action": TUNNEL_KEY_SET}
        redirect = {
            "index": self.redirection,
            "action": TC_ACT_STOLEN,
            "eaction": MIRRED_EGRESS_REDIRECT,
            "ifindex": self.way_out,
        }
        first = [
            ("TCA_TUNNEL_KEY_PARMS", tunnel),
            ("TCA_TUNNEL_KEY_ENC_IPV4_SRC", self.local),
            ("TCA_TUNNEL_KEY_ENC_IPV4_DST", self.remote),
            ("TCA_TUNNEL_KEY_ENC_KEY_ID", self.vni),
            ("TCA_TUNNEL_KEY_ENC_DST_PORT", self.port),
            ("TCA_TUNNEL_KEY_NO_CSUM", 1),
        ]
        actions = [
            ("TCA_ACT_PRIO_1", _action("tunnel_key", first, self.cookie)),
            ("TCA_ACT_PRIO_2", _action("mirred", [("TCA_MIRRED_PARMS", redirect)], self.cookie)),
        ]
        return {
            "attrs": [
                ("TCA_FLOWER_KEY_ETH_DST", self.mac),
                ("TCA_FLOWER_KEY_ETH_DST_MASK", "ff:ff:ff:ff:ff:ff"),
                ("TCA_FLOWER_ACT", {"attrs": actions}),
            ]
        }


def _action(kind: str, options: list[tuple[str, Any]], cookie: bytes) -> dict[str, Any]:
    return {
        "attrs": [
            ("TCA_ACT_KIND", kind),
            ("TCA_ACT_OPTIONS", {"attrs": options}),
            ("TCA_ACT_COOKIE", cookie),
        ]
    }
