"""Any interleaving of changes, lost, doubled and late messages, failed rule changes, crashes and restarts.

At every step: other owners' rules are unchanged, no right rule is deleted, and when the reconciler is in
step, the rules lead where the last dump showed. Within the timeout after the last change, rules and tables
agree.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from control.reconciler.model import ForwardingState, Table
from control.reconciler.ports import Changed, Delete, Dumped, Reason
from control.reconciler.reconciler import Reconciler, State
from control.reconciler.settings import ReconcilerSettings
from tests.contract.reconciler.reconciler_backends import (
    OWNER,
    QUIET,
    REPRESENTOR,
    REPRESENTORS,
    UPLINKS,
    VNI,
    Twin,
    mac,
    vtep,
)

TIMEOUT_S, DUMP_AND_RULES_S = 1.0, 0.1
"""The promised time, and the additional time for a few dumps and rules, s."""

pytestmark = pytest.mark.slow

SETTINGS = ReconcilerSettings(
    owner=OWNER, timeout_s=TIMEOUT_S, retry_s=0.02, retry_max_s=0.3, batch_rules=2, answer_s=0.2
)

addresses, hosts = st.integers(1, 5), st.integers(1, 3)
shares = st.sampled_from([0.0, 0.1, 0.5, 1.0])
failures = st.sampled_from([0.0, 0.3, 1.0])


def places(state: ForwardingState, *, with_route: bool) -> dict[int, set[int]]:
    """Return mac → VTEPs in the entries of that mac. Addresses on this host are left out."""
    local = set(state.bridge.mac.tolist())
    dead = {
        link
        for link, usable in zip(
            state.neighbours.ifindex.tolist(), state.neighbours.usable.tolist(), strict=True
        )
        if not usable
    }
    routed = {
        prefix
        for prefix, link in zip(state.routes.prefix.tolist(), state.routes.ifindex.tolist(), strict=True)
        if link not in dead
    }
    named: dict[int, set[int]] = {}
    for address, remote in zip(state.evpn.mac.tolist(), state.evpn.remote.tolist(), strict=True):
        if address not in local and (remote in routed or not with_route):
            named.setdefault(address, set()).add(remote)
    return named


class AnyInterleaving(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1000), loss=shares, failure=failures)
    def a_host(self, seed, loss, failure):
        # Dumps and rule changes are slow, so that other events happen meanwhile.
        slow = replace(
            QUIET, buffer_messages=3, dump_s=5e-3, dump_entry_s=1e-3, rule_s=2e-3, overtaken_s=0.05
        )
        self.kernel = Twin(slow, seed=seed)
        self.kernel.seen = self.look
        self.theirs = self.kernel.strangers()
        self.reconciler = None
        self.shown: ForwardingState | None = None
        self.tampered = self.interrupted = True
        for host in (1, 2):
            self.kernel.route(host)
        self.trouble(loss, 0.1, 0.1, failure)
        self.start()

    # --- what happens --------------------------------------------------------------------------------

    @rule(address=addresses, host=hosts, seconds=st.sampled_from([0.0, 0.0, 4e-3, 0.03]))
    def learn(self, address, host, seconds):
        self.kernel.learn(address, host)
        self.kernel.pass_time(1e-6 + seconds)

    @rule(address=addresses, host=hosts)
    def duplicate(self, address, host):
        self.kernel.also_at(address, host)

    @rule(address=addresses, host=hosts)
    def withdraw(self, address, host):
        self.kernel.withdraw(address, host)

    @rule(host=hosts, present=st.booleans())
    def route(self, host, present):
        self.kernel.route(host, present=present)

    @rule(uplink=st.sampled_from(UPLINKS), alive=st.booleans())
    def uplink(self, uplink, alive):
        self.kernel.uplink(uplink, alive=alive)

    @rule(address=addresses, present=st.booleans())
    def local(self, address, present):
        self.kernel.local(address, present=present)

    @rule(address=addresses, host=hosts)
    def a_stranger_adds(self, address, host):
        self.kernel.strangers_rule(address, host)
        self.theirs = self.kernel.strangers()

    @rule(address=addresses)
    def a_stranger_takes_ours(self, address):
        self.tampered = True
        self.kernel.lose_our_rule(address)

    @rule(address=addresses, host=hosts)
    def a_second_rule_of_ours(self, address, host):
        """A predecessor may have left a second rule."""
        self.tampered = True
        self.kernel.tables.add_rule((REPRESENTOR, mac(address), VNI, vtep(host), 7000 + host, 0, OWNER))

    @rule(loss=shares, duplication=shares, reordering=shares, failure=failures)
    def trouble(self, loss, duplication, reordering, failure):
        self.kernel.host.netlink = replace(
            self.kernel.host.netlink,
            loss=loss,
            duplication=duplication,
            reordering=reordering,
            rule_failure=failure,
        )

    @rule(seconds=st.sampled_from([1e-4, 3e-3, 0.02, 0.3]))
    def time_passes(self, seconds):
        self.kernel.pass_time(seconds)

    @rule()
    def crash(self):
        self.kernel.crash()
        self.reconciler = None

    @precondition(lambda self: self.reconciler is None)
    @rule()
    def start(self):
        self.reconciler = Reconciler(REPRESENTORS, SETTINGS)
        self.kernel.start(self.reconciler)

    @precondition(lambda self: self.reconciler is not None)
    @rule()
    def settle(self):
        """Lose all messages and let rule changes succeed, so that the timeout alone must suffice."""
        self.trouble(1.0, 0.0, 0.0, 0.0)
        self.kernel.pass_time(TIMEOUT_S + DUMP_AND_RULES_S)
        state = ForwardingState(
            *(
                self.kernel.tables.dump(table)
                for table in (Table.BRIDGE_FDB, Table.EVPN_FDB, Table.ROUTES, Table.NEIGHBOURS)
            )
        )
        ours = self.ours()
        wanted, known = places(state, with_route=True), places(state, with_route=False)
        assert wanted.keys() <= ours.keys()
        assert all(remote in wanted.get(address, known.get(address, ())) for address, remote in ours.items())
        changes = self.kernel.rule_changes
        self.kernel.pass_time(2 * TIMEOUT_S)
        assert self.kernel.rule_changes == changes

    # --- what must hold ------------------------------------------------------------------------------

    def ours(self) -> dict[int, int]:
        """Return mac → VTEP. There must be one rule per address unless a second was added from outside."""
        rows = [row for row in self.kernel.tables.rules() if row[6] == OWNER]
        assert self.tampered or len(rows) == len({row[1] for row in rows})
        return {row[1]: row[3] for row in rows}

    def look(self, event, instructions):
        """Check the instructions for an event before they are carried out."""
        if isinstance(event, Dumped):
            self.shown, self.tampered, self.interrupted = event.state, False, bool(event.incomplete)
        for instruction in instructions:
            assert instruction.cause.reason in Reason
            assert not (hasattr(instruction, "rules") and isinstance(event, Changed))
            if not isinstance(instruction, Delete):
                continue
            assert not self.interrupted
            wanted = places(self.shown, with_route=True)
            for address, remote, reason in zip(
                instruction.rules.mac.tolist(),
                instruction.rules.remote.tolist(),
                instruction.reasons.tolist(),
                strict=True,
            ):
                assert remote not in wanted.get(address, ()) or reason == Reason.DUPLICATE

    @invariant()
    def rules_of_others_are_as_they_were(self):
        if hasattr(self, "kernel"):
            assert self.kernel.strangers() == self.theirs

    @invariant()
    def in_step_the_rules_lead_where_the_last_dump_showed(self):
        machine = getattr(self, "reconciler", None)
        if machine is None or machine.state is not State.IDLE or self.tampered or machine.status.failing:
            return
        ours, wanted = self.ours(), places(self.shown, with_route=True)
        assert all(ours.get(address) in remotes for address, remotes in wanted.items())


AnyInterleaving.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyInterleaving = AnyInterleaving.TestCase
