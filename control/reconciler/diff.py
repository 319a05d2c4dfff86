"""Compute the smallest change from the installed rules to the desired ones.

For: `plan`, a pure function of a dump; applied to its own result, it plans nothing. Not for: the time of a
change (reconciler.py). Source: THORN-ML (Nazari, PhD thesis 2025, chapter 3). Foreign rules, recognised by
their cookie, take up room in the kernel and are otherwise ignored. docs/decisions/0015 covers rules whose
VTEP has no route.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.reconciler.desired import ADDRESS_BITS, Desired, contains, desired
from control.reconciler.model import MAC_BITS, MAC_MASK, Flags, ForwardingState, Representors, Rules, Whole
from control.reconciler.ports import Reason, Reasons


@dataclass(frozen=True, slots=True)
class Change:
    """Rules to change. reasons: the `Reason` of the change of each rule, uint8[n]."""

    rules: Rules
    reasons: Reasons


@dataclass(frozen=True, slots=True)
class Plan:
    """The rules to delete, replace and add, in this order, so that room is made first.

    wanted: number of rules that the state calls for.
    refused: number of these rules for which there is no room.
    unreachable: number of rules that are kept although their VTEP has no route.
    duplicated: number of entries dropped because another VTEP has the same address.
    """

    delete: Change
    replace: Change
    add: Change
    wanted: int
    refused: int
    unreachable: int
    duplicated: int


@dataclass(frozen=True, slots=True)
class _Match:
    """Each desired rule matched with our installed rules.

    installed: there is a rule of ours for the same device and address, bool[n]. at: position of that rule,
    int64[n]. same: the installed rule is already right, bool[n]. kept: the rule must be in force afterwards,
    bool[n].
    """

    installed: Flags
    at: Whole
    same: Flags
    kept: Flags


def plan(
    state: ForwardingState,
    rules: Rules,
    representors: Representors,
    *,
    owner: int,
    max_rules: int,
    first_action: int,
) -> Plan:
    """Return the changes that turn `rules` (all installed rules) into what `state` calls for.

    owner: cookie of our rules, including those of a crashed predecessor.
    max_rules: number of rules that the kernel takes, foreign ones included. If there are more, installed
    rules come first, then lower representors and addresses.
    first_action: lowest index for a new shared action.
    """
    ours = rules.cookie == owner
    own, own_key = _in_order(rules if ours.all() else rules.take(ours), representors)
    want = desired(state, representors, own)
    match, refused = _match(want, own, own_key, max_rules - (len(ours) - len(own_key)))
    stays = np.zeros(len(own_key), np.bool_)
    stays[match.at[match.installed & match.kept]] = True
    changed = np.flatnonzero(match.kept & ~match.same)
    installed = match.installed[changed]
    vni, remote = want.vni[changed], want.remote[changed]
    target = Rules(
        device=representors.device[want.key[changed] >> MAC_BITS],
        mac=want.key[changed] & MAC_MASK,
        vni=vni,
        remote=remote,
        action=_actions((vni << ADDRESS_BITS) | remote, own, rules, first_action),
        handle=np.where(installed, own.handle[match.at[changed]], 0) if len(own_key) else np.zeros_like(vni),
        cookie=np.full(len(changed), owner, np.int64),
    )
    return Plan(
        delete=_deletions(own, own_key, ~stays, want, match),
        replace=_same_reason(target.take(installed), Reason.MOVED),
        add=_same_reason(target.take(~installed), Reason.NEW_ENTRY),
        wanted=int((want.reachable | match.same).sum()),
        refused=refused,
        unreachable=int((match.kept & ~want.reachable).sum()),
        duplicated=want.duplicated,
    )


def _same_reason(rules: Rules, reason: Reason) -> Change:
    return Change(rules, np.full(len(rules.mac), reason, np.uint8))


def _in_order(own: Rules, representors: Representors) -> tuple[Rules, Whole]:
    """Return our rules and their keys, ascending. Rules on devices that are not representors come last."""
    count = len(representors.device)
    place = np.searchsorted(representors.device, own.device)
    known = place < count
    known[known] = representors.device[place[known]] == own.device[known]
    key = (np.where(known, place, count) << MAC_BITS) | own.mac
    if not (key[1:] > key[:-1]).all():
        order = np.argsort(key)
        if (np.diff(key[order]) == 0).any():
            # If several rules have the same address, the oldest (lowest handle) comes first and stays.
            order = np.lexsort((own.handle, key))
        own, key = own.take(order), key[order]
    return own, key


def _match(want: Desired, own: Rules, own_key: Whole, room: int) -> tuple[_Match, int]:
    """Return the matched rules and the number of desired rules for which there is no room."""
    count = len(own_key)
    if np.array_equal(want.key, own_key):
        at, installed = np.arange(count), np.ones(count, np.bool_)
    else:
        at = np.searchsorted(own_key, want.key)
        at[at == count] = 0
        installed = own_key[at] == want.key if count else np.zeros(len(want.key), np.bool_)
    same = installed.copy()
    same[installed] = (own.vni[at[installed]] == want.vni[installed]) & (
        own.remote[at[installed]] == want.remote[installed]
    )
    kept = want.reachable | same
    wanted = int(kept.sum())
    refused = max(wanted - max(room, 0), 0)
    if refused:
        rows = np.flatnonzero(kept)
        kept[rows[np.argsort(~installed[rows], kind="stable")[wanted - refused :]]] = False
    return _Match(installed, at, same, kept), refused


def _actions(pairs: Whole, own: Rules, rules: Rules, first_action: int) -> Whole:
    """Return the action's index for each pair (VNI above remote): the one our rules use, else a free one."""
    if not pairs.size:
        return pairs
    installed, first = np.unique((own.vni << ADDRESS_BITS) | own.remote, return_index=True)
    distinct, place = np.unique(pairs, return_inverse=True)
    has = contains(installed, distinct)
    taken = np.unique(rules.action)
    number = np.arange(first_action, first_action + len(distinct) + len(taken))
    index = number[~contains(taken, number)][: len(distinct)]
    index[has] = own.action[first[np.searchsorted(installed, distinct[has])]]
    return index[place]


def _deletions(own: Rules, own_key: Whole, gone: Flags, want: Desired, match: _Match) -> Change:
    """Return our rules that must be deleted. The first matching reason is recorded."""
    rows = np.flatnonzero(gone)
    key = own_key[rows]
    repeated = np.concatenate(([False], own_key[1:] == own_key[:-1]))[rows] if rows.size else gone[rows]
    refused = ~match.kept & (want.reachable | match.same)
    reasons = np.select(
        [
            repeated,
            contains(want.on_host, key),
            contains(want.key[refused], key),
            contains(want.key[~match.kept], key),
        ],
        [Reason.DUPLICATE, Reason.ON_THIS_HOST, Reason.NO_ROOM, Reason.MOVED_OUT_OF_REACH],
        Reason.WITHDRAWN,
    )
    return Change(own.take(rows), reasons.astype(np.uint8))
