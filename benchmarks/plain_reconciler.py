"""The baseline: decide which rules to add, replace and delete with dicts, one entry at a time, in plain
Python.

For: the ratio in bench_reconciler. Not for: production. It decides what control.reconciler.diff decides for
one representor, host routes and no duplicated addresses.
"""

from __future__ import annotations

from collections.abc import Iterable

Row = tuple[int, ...]


def diff(
    bridge: Iterable[Row],
    evpn: Iterable[Row],
    routes: Iterable[Row],
    neighbours: Iterable[Row],
    rules: Iterable[Row],
    device: int,
    vni: int,
    owner: int,
) -> tuple[list[Row], list[Row], list[Row]]:
    """Return rules to delete, to replace and to add: rows (device, mac, vni, remote, action, handle,
    cookie)."""
    dead = {(address, link) for address, _, link, usable in neighbours if not usable}
    routed = {prefix for prefix, _, gateway, link in routes if (gateway, link) not in dead}
    entries = list(evpn)
    tunnels = {link for _, _, _, link in entries}
    on_host = {mac for mac, port, _, is_local in bridge if is_local or port not in tunnels}
    wanted = {
        mac: remote
        for mac, remote, tenant, _ in entries
        if tenant == vni and mac and not mac >> 40 & 1 and mac not in on_host
    }
    actions = {}
    installed = {}
    for rule in rules:
        if rule[6] == owner and rule[0] == device:
            installed[rule[1]] = rule
            actions[rule[3]] = rule[4]
    next_action = max(actions.values(), default=0) + 1
    delete = [rule for mac, rule in installed.items() if mac not in wanted]
    replace, add = [], []
    for mac, remote in wanted.items():
        installed_rule = installed.get(mac)
        if installed_rule is not None and installed_rule[3] == remote:
            continue
        if remote not in routed:
            continue
        if remote not in actions:
            actions[remote] = next_action
            next_action += 1
        handle = 0 if installed_rule is None else installed_rule[5]
        row = (device, mac, vni, remote, actions[remote], handle, owner)
        (add if installed_rule is None else replace).append(row)
    return delete, replace, add
