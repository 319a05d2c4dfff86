"""Escra's promises, kept whatever comes in whatever order (ICDCS 2022)."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from control.allocator import escra_cpu
from control.allocator.escra import Escra, EscraSettings
from control.allocator.model import PAGE_BYTES, Reason
from tests.control.allocator.fleets import LEAST_CORES, MIB, application, join, oom, period, shrunk
from twin.containers.compiled import compiled
from twinbed import InvariantError, ScenarioError

APPS = (
    application(cores=0.25, memory_bytes=300 * MIB + 77, name="tight"),
    application(cores=6.0, memory_bytes=1000 * MIB, name="roomy"),
    application(cores=40.0, memory_bytes=20 * PAGE_BYTES, name="tiny-memory"),
)
HOSTS = (0.5, 2.0, 8.0)


class Fleet(RuleBasedStateMachine):
    """A backend that keeps its own books from the decisions alone and checks them against the promises."""

    @initialize(
        containers=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(HOSTS)), max_size=12),
        guard=st.booleans(),
        window=st.integers(1, 6),
    )
    def deploy(self, containers, guard, window):
        self.escra = Escra(EscraSettings(stale_mean_guard=guard, window=window))
        self.app, self.host, self.quota, self.limit = {}, {}, {}, {}
        self.past = deque([{}], maxlen=3)
        self.gone, self.waiting = [], {}
        fleet = join([app for app, _ in containers], [host for _, host in containers])
        self.admit(containers, self.escra.start(APPS, fleet))

    def admit(self, containers, decision):
        count = len(containers)
        new = decision.cpu.ids[len(decision.cpu.ids) - count :].tolist()
        assert decision.memory.ids.tolist() == new
        assert not set(new) & (set(self.app) | set(self.gone))
        for container, (app, host) in zip(new, containers, strict=True):
            self.app[container], self.host[container] = app, host
        older = decision.cpu.ids[: len(decision.cpu.ids) - count].tolist()
        for container, quota in zip(older, decision.cpu.quota_cores, strict=False):
            assert quota < self.quota[container]
        self.carry_out(decision)

    def carry_out(self, decision):
        for ids in (decision.cpu.ids, decision.memory.ids, decision.kill, decision.restart):
            assert set(ids.tolist()) <= set(self.app), "a decision on a container that is not there"
            assert len(set(ids.tolist())) == len(ids)
        self.quota |= dict(zip(decision.cpu.ids.tolist(), decision.cpu.quota_cores.tolist(), strict=True))
        self.limit |= dict(
            zip(decision.memory.ids.tolist(), decision.memory.limit_bytes.tolist(), strict=True)
        )
        self.past.append(dict(self.quota))

    @rule(containers=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(HOSTS)), max_size=8))
    def containers_join(self, containers):
        fleet = join([app for app, _ in containers], [host for _, host in containers])
        members = [*self.app.values(), *(app for app, _ in containers)]
        full = [
            spec.name
            for app, spec in enumerate(APPS)
            if members.count(app) * LEAST_CORES > spec.cpu_limit_cores
            or members.count(app) * PAGE_BYTES > spec.memory_limit_bytes
        ]
        if containers and full:
            with pytest.raises(ScenarioError, match="|".join(full)):
                self.escra.on_join(fleet)
            return
        decision = self.escra.on_join(fleet)
        self.admit(containers, decision)

    @rule(data=st.data())
    def containers_leave(self, data):
        leaving = data.draw(st.lists(st.sampled_from(sorted(self.app) + self.gone + [10**6]), max_size=5))
        assert self.escra.on_leave(np.array(leaving, np.int64)).empty
        for container in set(leaving) & set(self.app):
            for book in (self.app, self.host, self.quota, self.limit):
                del book[container]
            self.waiting.pop(container, None)
            self.gone.append(container)

    @rule(data=st.data(), seed=st.integers(0, 2**32 - 1))
    def a_period_ends(self, data, seed):
        """Of some containers or all, in any order; quotas up to three decisions old; strangers among them."""
        rng = np.random.default_rng(seed)
        there = sorted(self.app)
        if data.draw(st.booleans()):
            there = rng.permutation([i for i in there + self.gone if rng.random() < 0.7]).tolist()
        then = [self.past[rng.integers(len(self.past))] for _ in there]
        quota = np.array([old.get(i, self.quota.get(i, 1.0)) for i, old in zip(there, then, strict=True)])
        unused = quota * rng.random(len(there)) * (rng.random(len(there)) < 0.6)
        throttled = rng.random(len(there)) < data.draw(st.sampled_from([0.0, 0.2, 0.9]))
        decision = self.escra.on_period(period(there, quota, unused, throttled))
        reported = dict(zip(there, zip(quota, unused, throttled, strict=True), strict=True))
        for container, new, reason in zip(
            decision.cpu.ids.tolist(), decision.cpu.quota_cores, decision.cpu.reason, strict=True
        ):
            before, left, was_throttled = reported[container]
            assert (reason == Reason.THROTTLED) == was_throttled
            if was_throttled:
                assert new > self.quota[container]
            else:
                assert left > 0.2
                assert new <= max(before, LEAST_CORES)
        self.carry_out(decision)

    @precondition(lambda self: self.app)
    @rule(data=st.data())
    def containers_hit_their_memory_limit(self, data):
        held = data.draw(st.lists(st.sampled_from(sorted(self.app) + self.gone), min_size=1, unique=True))
        needed = data.draw(
            st.lists(
                st.sampled_from([1, PAGE_BYTES, 3 * MIB + 5, 17 * MIB, 400 * MIB]),
                min_size=len(held),
                max_size=len(held),
            )
        )
        before = dict(self.limit)
        decision = self.escra.on_oom(oom(held, needed))
        granted = set(decision.memory.ids.tolist())
        fresh = {i: n for i, n in zip(held, needed, strict=True) if i in self.app and i not in self.waiting}
        assert granted <= set(fresh)
        assert not decision.kill.size
        for container, bytes_needed in fresh.items():
            if container not in granted:
                assert self.app[container] in decision.reclaim
                self.waiting[container] = bytes_needed
        self.carry_out(decision)
        for container in granted:
            assert self.limit[container] >= before[container] + fresh[container]

    @rule(data=st.data())
    def agents_report_a_reclaim(self, data):
        apps = data.draw(st.sets(st.integers(0, 2), min_size=1))
        ids = [i for i in sorted(self.app) if self.app[i] in apps and i not in self.waiting]
        ids = ids[: data.draw(st.integers(0, 6))]
        lowered = [self.limit[i] * data.draw(st.integers(0, 4)) // 4 for i in ids]
        self.limit |= dict(zip(ids, lowered, strict=True))
        before = dict(self.limit)
        decision = self.escra.on_reclaimed(
            shrunk(sorted(apps), ids + self.gone[:2], lowered + [0] * len(self.gone[:2]))
        )
        answered = {i for i in self.waiting if self.app[i] in apps}
        granted, killed = set(decision.memory.ids.tolist()), set(decision.kill.tolist())
        assert granted | killed == answered
        assert not granted & killed
        self.carry_out(decision)
        for container in answered:
            needed = self.waiting.pop(container)
            assert container in killed or self.limit[container] >= before[container] + needed

    @invariant()
    def no_application_exceeds_its_limits(self):
        for app, spec in enumerate(APPS):
            members = [i for i in self.app if self.app[i] == app]
            assert sum(self.quota[i] for i in members) <= spec.cpu_limit_cores * (1 + 1e-9)
            pool = int(self.escra.memory.pool_bytes[app])
            assert sum(self.limit[i] for i in members) + pool == spec.memory_limit_bytes
            assert pool >= 0

    @invariant()
    def every_quota_is_between_the_kernels_minimum_and_the_host(self):
        for container, quota in self.quota.items():
            assert LEAST_CORES <= quota <= self.host[container]

    @invariant()
    def the_books_agree(self):
        for container in self.app:
            at = container & 0xFFFFFFFF
            assert self.escra.cpu.allocated_cores[at] == self.quota[container]
            assert self.escra.memory.limit_bytes[at] == self.limit[container]
        assert set(self.escra.memory.waiting.tolist()) == set(self.waiting)


TestFleet = pytest.mark.slow(pytest.mark.filterwarnings("error::RuntimeWarning")(Fleet.TestCase))
TestFleet.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), containers=st.integers(1, 40), apps=st.integers(1, 3))
def test_the_order_of_telemetry_does_not_change_any_decision(seed, containers, apps):
    rng = np.random.default_rng(seed)
    fleet = join(rng.integers(0, apps, containers).tolist(), rng.choice(HOSTS, containers).tolist())
    first, other = Escra(EscraSettings()), Escra(EscraSettings())
    specs = [application(cores=containers * 0.7, name=f"a{i}") for i in range(apps)]
    ids = first.start(specs, fleet).cpu.ids
    other.start(specs, fleet)
    for _ in range(8):
        quota = first.cpu.allocated_cores
        unused = quota * rng.random(containers) * (rng.random(containers) < 0.5)
        throttled = rng.random(containers) < 0.4
        order = rng.permutation(containers)
        decisions = [
            escra.on_period(period(ids[o], quota[o], unused[o], throttled[o]))
            for escra, o in ((first, np.arange(containers)), (other, order))
        ]
        assert by_id(decisions[0]) == by_id(decisions[1])


def by_id(decision):
    """To the bit: floats are compared as they are."""
    cpu = decision.cpu
    return {i: (q, r) for i, q, r in zip(cpu.ids.tolist(), cpu.quota_cores.tolist(), cpu.reason, strict=True)}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_memory_events_does_not_change_any_decision(seed):
    rng = np.random.default_rng(seed)
    held = rng.permutation(6)
    needed = rng.choice([1, 5 * MIB, 20 * MIB, 40 * MIB, 90 * MIB], 6)
    answers = []
    for order in (np.arange(6), rng.permutation(6)):
        escra = Escra(EscraSettings())
        escra.start([application(memory_bytes=400 * MIB)], join([0] * 8))
        first = escra.on_oom(oom(held[order], needed[order]))
        second = escra.on_reclaimed(shrunk([0], [6, 7], [20 * MIB] * 2))
        answers.append(
            [
                dict(zip(d.memory.ids.tolist(), d.memory.limit_bytes.tolist(), strict=True))
                for d in (first, second)
            ]
            + [set(second.kill.tolist())]
        )
    assert answers[0] == answers[1]


def by_the_book(quota, unused, throttled, past, allocated, omega, host):
    """Escra's CPU rule (ICDCS 2022) for one container at a time; returns the quotas decided (None: none)."""
    pool = omega - sum(allocated)
    wanted = []
    for q, left, th, window in zip(quota, unused, throttled, past, strict=True):
        if th:
            wanted.append(q + sum(t for _, t in window) / len(window) * 0.2 * pool)
        elif left > 0.2:
            mean = sum(u for u, _ in window) / len(window)
            wanted.append(q - 0.8 * min(mean, left))
        else:
            wanted.append(None)
    wanted = [None if w is None else max(0.01, min(w, host)) for w in wanted]
    asked = sum(max(w - a, 0.0) for w, a in zip(wanted, allocated, strict=True) if w is not None)
    share = min(1.0, pool / asked) if asked else 1.0
    return [
        None if w is None else a + (w - a) * (share if w > a else 1.0)
        for w, a in zip(wanted, allocated, strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), containers=st.integers(1, 30))
def test_decisions_equal_the_rule_written_out_for_one_container_at_a_time(seed, containers):
    rng = np.random.default_rng(seed)
    omega, host = containers * 1.5, 2.0
    escra = Escra(EscraSettings(min_change=0.0))
    ids = escra.start([application(cores=omega)], join([0] * containers, host)).cpu.ids
    past = [deque(maxlen=5) for _ in range(containers)]
    for _ in range(9):
        allocated = escra.cpu.allocated_cores
        unused = allocated * rng.random(containers) * (rng.random(containers) < 0.6)
        throttled = rng.random(containers) < 0.4
        for window, left, th in zip(past, unused, throttled, strict=True):
            window.append((left, th))
        expected = by_the_book(allocated, unused, throttled, past, allocated, omega, host)
        decided = {
            i: q for i, (q, _) in by_id(escra.on_period(period(ids, allocated, unused, throttled))).items()
        }
        for i, (before, wanted) in enumerate(zip(allocated, expected, strict=True)):
            # Quotas are whole microcores; a change of less than one is not made.
            assert decided.get(i, before) == pytest.approx(before if wanted is None else wanted, abs=3e-6)


FORMS = {"blocks": (3, 0, None), "one": (10**6, 24, None), "plain": (10**6, 24, lambda rule: rule)}
FORMS |= {"compiled": (10**6, 0, compiled), "compiled blocks": (3, 0, compiled)}
"""Forms of the rule: containers of a block, and how many are few; the compiler, or None for NumPy. The plain
function can be followed line by line."""


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    apps=st.integers(1, 3),
    window=st.sampled_from([1, 5, 32]),
    guard=st.booleans(),
)
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_the_rule_decide_the_same_in_the_same_order(form, seed, apps, window, guard):
    """Blocks list their changes one after the other, so against another block only what is decided counts."""
    rng = np.random.default_rng(seed)
    count = 24
    fleet = join(rng.integers(0, apps, count).tolist(), rng.choice(HOSTS, count).tolist())
    specs = [application(cores=count * rng.choice([0.02, 0.3, 2.0]), name=f"a{i}") for i in range(apps)]
    parameters = EscraSettings(
        window=window, stale_mean_guard=guard, min_change=rng.choice([0.0, 0.05]), gamma=0.02
    )
    both = [Escra(parameters), Escra(parameters)]
    block, few, compiler = FORMS[form]
    if compiler is not None:
        both[1].compile(compiler)
    ids, _ = (escra.start(specs, fleet).cpu.ids for escra in both)
    for number in range(30):
        # Now and then everybody reports, as a backend does whose periods end together.
        some = np.arange(count) if number % 10 > 6 else rng.permutation(count)[: rng.integers(0, count)]
        quota = both[0].cpu.allocated_cores[some] * rng.choice([1.0, 1.0, 0.7], len(some))
        unused = quota * rng.random(len(some)) * (rng.random(len(some)) < 0.5)
        period_s = 0.2 if number > 20 else 0.1
        report = period(ids[some], quota, unused, rng.random(len(some)) < 0.4, period_s)
        decided = []
        for escra, sizes in zip(both, ((block if compiler else 10**6, 0), (block, few)), strict=True):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(escra_cpu, "BLOCK", sizes[0])
                patch.setattr(escra_cpu, "FEW", sizes[1])
                decided.append(escra.on_period(report))
        assert by_id(decided[0]) == by_id(decided[1])
        assert form == "blocks" or decided[0].cpu.ids.tolist() == decided[1].cpu.ids.tolist()
        assert both[0].cpu.allocated_cores.tolist() == both[1].cpu.allocated_cores.tolist()
        assert both[0].cpu.pool_cores.tolist() == both[1].cpu.pool_cores.tolist()


@pytest.mark.parametrize("few", [0, 8, None])
@pytest.mark.parametrize("wrong", [{"quota": np.nan}, {"unused": np.nan}])
def test_telemetry_that_is_no_number_is_refused_however_many_report(monkeypatch, few, wrong):
    """few: None stands for the compiled rule."""
    escra = Escra(EscraSettings())
    if few is None:
        escra.compile(compiled)
    else:
        monkeypatch.setattr(escra_cpu, "FEW", few)
    ids = escra.start([application()], join([0] * 4)).cpu.ids
    ones, nobody = np.ones(2), np.zeros(2, np.bool_)
    escra.on_period(period(ids[:2], ones, ones * wrong.get("unused", 0.0), nobody))
    # An unused runtime that is none shows in the next period's mean.
    with pytest.raises(InvariantError, match="not a number"):
        escra.on_period(period(ids[:2], ones * wrong.get("quota", 1.0), ones * 0.9, nobody))
