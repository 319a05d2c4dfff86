"""The least change from the installed rules to the desired ones.

For: `plan`, a pure function of a dump. Not for: when to change what (reconciler.py). Applied to its own
outcome it plans nothing. Foreign rules, told by their cookie, count against the kernel's room and are
otherwise not looked at. docs/decisions/0015 says what happens to rules whose VTEP has no route.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.reconciler.desired import ADDRESS_BITS, Desired, contains, desired
from control.reconciler.model import MAC_BITS, MAC_MASK, Flags, ForwardingState, Representors, Rules, Whole
from control.reconciler.ports import Reason, Reasons


@dataclass(frozen=True, slots=True)
class Change:
    """Rules and, for each, the `Reason` (uint8[n]) why it is changed."""

    rules: Rules
    reasons: Reasons


@dataclass(frozen=True, slots=True)
class Plan:
    """What to delete, replace and add, in this order, so that room is made first.

    wanted: rules that the state calls for; refused: those of them for which there is no room; unreachable:
    kept though their VTEP has no route; duplicated: entries that lost to another VTEP's of the same address.
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
    """Desired rules beside installed ones. found: bool[n], there is one of ours for the same device and
    address; at: int64[n], where; same: bool[n], and it is right; kept: bool[n], it shall be there."""

    found: Flags
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
    """What makes `rules` (all that are installed) what `state` calls for.

    owner: the cookie of our rules, a predecessor's among them; max_rules: that the kernel takes, foreign ones
    included: beyond it installed rules come first, then lower representors and addresses; first_action: new
    shared actions are numbered from there.
    """
    ours = rules.cookie == owner
    own, own_key = _in_order(rules if ours.all() else rules.take(ours), representors)
    want = desired(state, representors, own)
    match, refused = _match(want, own, own_key, max_rules - (len(ours) - len(own_key)))
    stays = np.zeros(len(own_key), np.bool_)
    stays[match.at[match.found & match.kept]] = True
    changed = np.flatnonzero(match.kept & ~match.same)
    found = match.found[changed]
    vni, remote = want.vni[changed], want.remote[changed]
    target = Rules(
        device=representors.device[want.key[changed] >> MAC_BITS],
        mac=want.key[changed] & MAC_MASK,
        vni=vni,
        remote=remote,
        action=_actions((vni << ADDRESS_BITS) | remote, own, rules, first_action),
        handle=np.where(found, own.handle[match.at[changed]], 0) if len(own_key) else np.zeros_like(vni),
        cookie=np.full(len(changed), owner, np.int64),
    )
    return Plan(
        delete=_deletions(own, own_key, ~stays, want, match),
        replace=_same_reason(target.take(found), Reason.MOVED),
        add=_same_reason(target.take(~found), Reason.NEW_ENTRY),
        wanted=int((want.reachable | match.same).sum()),
        refused=refused,
        unreachable=int((match.kept & ~want.reachable).sum()),
        duplicated=want.duplicated,
    )


def _same_reason(rules: Rules, reason: Reason) -> Change:
    return Change(rules, np.full(len(rules.mac), reason, np.uint8))


def _in_order(own: Rules, representors: Representors) -> tuple[Rules, Whole]:
    """Our rules and their keys, ascending; those on devices that are no representors come last."""
    count = len(representors.device)
    place = np.searchsorted(representors.device, own.device)
    known = place < count
    known[known] = representors.device[place[known]] == own.device[known]
    key = (np.where(known, place, count) << MAC_BITS) | own.mac
    if not (key[1:] > key[:-1]).all():
        order = np.argsort(key)
        if (np.diff(key[order]) == 0).any():
            # Of several for one address the oldest comes first, and stays.
            order = np.lexsort((own.handle, key))
        own, key = own.take(order), key[order]
    return own, key


def _match(want: Desired, own: Rules, own_key: Whole, room: int) -> tuple[_Match, int]:
    """Finds each desired rule's installed one, and says how many find no room."""
    count = len(own_key)
    if np.array_equal(want.key, own_key):
        at, found = np.arange(count), np.ones(count, np.bool_)
    else:
        at = np.searchsorted(own_key, want.key)
        at[at == count] = 0
        found = own_key[at] == want.key if count else np.zeros(len(want.key), np.bool_)
    same = found.copy()
    same[found] = (own.vni[at[found]] == want.vni[found]) & (own.remote[at[found]] == want.remote[found])
    kept = want.reachable | same
    wanted = int(kept.sum())
    refused = max(wanted - max(room, 0), 0)
    if refused:
        rows = np.flatnonzero(kept)
        kept[rows[np.argsort(~found[rows], kind="stable")[wanted - refused :]]] = False
    return _Match(found, at, same, kept), refused


def _actions(pairs: Whole, own: Rules, rules: Rules, first_action: int) -> Whole:
    """The action's index for each pair (VNI above the remote): the one that our rules use, else a free
    one."""
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
    """Our rules that shall not be there any more. What applies first, is said."""
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
