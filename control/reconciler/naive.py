"""A subscriber that believes its messages: one rule change per message, and no dump except the first.

For: comparison with the reconciler over the same port. Not for: production. It never does what a lost message
said, and if two messages arrive in the wrong order, the older one wins. Source: the naive implementation that
THORN-ML argues against (Nazari, PhD thesis 2025, chapter 3).
"""

from __future__ import annotations

import numpy as np

from control.reconciler.diff import plan
from control.reconciler.model import Representors, Rules
from control.reconciler.ports import (
    ALL_TABLES,
    Add,
    Cause,
    Changed,
    Delete,
    Dump,
    Dumped,
    Event,
    Instruction,
    Reason,
    Replace,
    RuleChange,
    Started,
)
from control.reconciler.settings import ReconcilerSettings


class NaiveSubscriber:
    """Implement `ports.RuleController`. Routes and neighbours are ignored after the first dump."""

    def __init__(self, representors: Representors, settings: ReconcilerSettings) -> None:
        self._representors, self._settings = representors, settings
        self._request = 0
        self._remotes: dict[tuple[int, int], int] = {}  # (device, MAC address) → VTEP, as it believes
        self._actions: dict[tuple[int, int], int] = {}  # (VNI, VTEP) → index
        self._held: list[Changed] | None = []  # messages that came before the first dump

    def handle(self, event: Event) -> list[Instruction]:
        """See `ports.RuleController.handle`. Timers, failures and lost messages are ignored."""
        if isinstance(event, Started):
            return [Dump(self._next_request(), ALL_TABLES, Cause(Reason.STARTED, event.at_s))]
        if isinstance(event, Dumped):
            held, self._held = self._held or [], None
            return sum(map(self._follow, held), self._begin(event))
        if isinstance(event, Changed):
            if self._held is None:
                return self._follow(event)
            self._held.append(event)
        return []

    def _begin(self, event: Dumped) -> list[Instruction]:
        settings = self._settings
        planned = plan(
            event.state,
            event.rules,
            self._representors,
            owner=settings.owner,
            max_rules=settings.max_rules,
            first_action=settings.first_action,
        )
        own = event.rules.take(event.rules.cookie == settings.owner)
        for rules in (own, planned.replace.rules, planned.add.rules):
            for device, mac, vni, remote, action in zip(
                rules.device.tolist(),
                rules.mac.tolist(),
                rules.vni.tolist(),
                rules.remote.tolist(),
                rules.action.tolist(),
                strict=True,
            ):
                self._remotes[device, mac] = remote
                self._actions[vni, remote] = action
        cause = Cause(Reason.STARTED, event.at_s, event.request)
        steps: tuple[tuple[type[RuleChange], Rules, Reason], ...] = (
            (Delete, planned.delete.rules, Reason.WITHDRAWN),
            (Replace, planned.replace.rules, Reason.MOVED),
            (Add, planned.add.rules, Reason.NEW_ENTRY),
        )
        return [
            self._change(operation, rules, reason, cause)
            for operation, rules, reason in steps
            if rules.mac.size
        ]

    def _follow(self, message: Changed) -> list[Instruction]:
        entries, gone = message.entries, message.gone
        cause = Cause(Reason.CHANGED, message.at_s)
        changes: list[Instruction] = []
        if entries is None:
            return changes
        for mac, remote, vni in zip(
            entries.mac.tolist(), entries.remote.tolist(), entries.vni.tolist(), strict=True
        ):
            for device in self._representors.device[self._representors.vni == vni].tolist():
                rule = self._rule(device, mac, vni, remote)
                if gone:
                    self._remotes.pop((device, mac), None)
                    changes.append(self._change(Delete, rule, Reason.WITHDRAWN, cause))
                elif (device, mac) in self._remotes:
                    self._remotes[device, mac] = remote
                    changes.append(self._change(Replace, rule, Reason.MOVED, cause))
                else:
                    self._remotes[device, mac] = remote
                    changes.append(self._change(Add, rule, Reason.NEW_ENTRY, cause))
        return changes

    def _rule(self, device: int, mac: int, vni: int, remote: int) -> Rules:
        new = max(self._actions.values(), default=self._settings.first_action - 1) + 1
        action = self._actions.setdefault((vni, remote), new)
        row = np.array([[device], [mac], [vni], [remote], [action], [0], [self._settings.owner]], np.int64)
        return Rules(*row)

    def _change(self, operation: type[RuleChange], rules: Rules, reason: Reason, cause: Cause) -> RuleChange:
        return operation(self._next_request(), rules, np.full(len(rules.mac), reason, np.uint8), cause)

    def _next_request(self) -> int:
        self._request += 1
        return self._request
