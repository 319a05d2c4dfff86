"""The Kubernetes Vertical Pod Autoscaler: percentiles of decaying histograms, put in force by restarts.

For: the updater and the admission controller as one allocator. Not for: recommendations (vpa_recommender.py)
nor the application's global limits, which Kubernetes does not have (cap.py).

Source: kubernetes/autoscaler, vertical-pod-autoscaler/pkg/updater/priority and pkg/admission-controller.

A container has a *request* and a *limit* of each resource. The VPA recommends the request from usage. It sets
the request, and the limit in proportion: `limit_ratio` times the request (controlledValues
RequestsAndLimits), or no new limit (RequestsOnly). Backends enforce limits. A request reserves nothing here,
because no scheduler places containers. The recommendation is compared with it.

Requests and limits change when the updater evicts a container:

- the request is outside the recommended bounds, or
- the container was killed for memory within `quick_oom_s` of its start, and the update changes
  something, or
- it is at least `min_age_s` old and the request differs by at least `update_threshold` from the
  target.

A container that is killed for memory starts again under its old limit.

**What Ω and M mean here.** They bound the sum of *limits*, as a namespace's ResourceQuota for limits.cpu and
limits.memory would. Limits of twice the request may add up to more. Then raises share what is left (cap.py),
and a limit gets less than its ratio. If less than the request is left, the request shrinks to the limit.
Neither backend ever sees limits above Ω or M.

docs/decisions/0033-vpa-as-kubernetes.md lists the differences from Kubernetes. The main ones: every container
is a pod of its own, and a request that a limit cuts is worth a restart only if it still moves by
`update_threshold`.

**Update modes.** Off changes nothing. Initial sets requests when a container joins, from the history of its
workload's replicas. Recreate sets the same requests and also evicts. InPlaceOrRecreate (AEP-4016) and InPlace
(AEP-8818) resize running containers (KEP-1287, stable in Kubernetes 1.35) under the same conditions as an
eviction. The container does not restart, so its age is not reset. vpa_resize.py decides the outcome of a
resize, and when it becomes an eviction. An evicted container stays on its host, because no scheduler moves
it. If the node is too small, the container requests all of the node, as with a maxAllowed of that size.

The kubelet refuses a resize that lowers the memory limit to the usage or below, because the kernel would
refuse it (cgroup v1) or kill the container (v2). CPU then waits, too, and the next update tries again.
"Usage" is the last telemetry, at most a period and its delay old. The kubelet reads it at the node.

Memory: 1.7 kB per container, of which the recommender takes 1.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from control.allocator.model import (
    NO_IDS,
    NOTHING,
    Application,
    CpuRequests,
    Decision,
    Flags,
    Floats,
    Join,
    OomEvents,
    Reason,
    Slots,
    slot,
    together,
)
from control.allocator.roster import Roster
from control.allocator.sampled import SampledPolicy
from control.allocator.vpa_recommender import Estimate, Recommender
from control.allocator.vpa_resize import Step, fitting, next_step, worth_another_try
from control.allocator.vpa_settings import VpaSettings


def drift(requests: Floats, targets: Floats) -> Floats:
    """Return the sum over resources of |request − target| / request, float64[n]; both: float64[2, n]."""
    return np.asarray((abs(requests - targets) / requests).sum(axis=0), np.float64)


def outside(requests: Floats, estimate: Estimate) -> Flags:
    """Return whether some request (float64[2, n]) is outside its recommended bounds, bool[n]."""
    return np.asarray(((requests < estimate.lower) | (requests > estimate.upper)).any(axis=0), np.bool_)


def worth_updating(
    outside: Flags, drift: Floats, age_s: Floats, oom_ran_s: Floats, settings: VpaSettings
) -> Flags:
    """Return the containers that the updater chooses, bool[n].

    outside: a request is outside its bounds. drift: as the function of that name. age_s: time since the last
    update or the start, s. oom_ran_s: run time before the last OOM kill, s; infinite without one.
    """
    due = (age_s >= settings.min_age_s) & (drift >= settings.update_threshold)
    quick_oom = oom_ran_s < settings.quick_oom_s
    return np.asarray((outside | quick_oom | due) & ~(quick_oom & (drift == 0.0)), np.bool_)


def admitted(requests: Floats, targets: Floats, evict_when: str) -> Flags:
    """Return the updates that move a request in the direction `evict_when`, bool[n]; all for other text.

    requests, targets: present and wanted requests, float64[2, n]: CPU, cores, and memory, bytes.
    """
    if evict_when not in ("higher", "lower"):
        return np.ones(requests.shape[1], np.bool_)
    moves = targets > requests if evict_when == "higher" else targets < requests
    return np.asarray(moves.any(axis=0), np.bool_)


def refused(limit: Floats, new_limit: Floats, usage: Floats) -> Flags:
    """Return the memory limits (bytes, float64[n]) that the kubelet refuses to change in place, bool[n]."""
    return np.asarray((new_limit < limit) & (new_limit <= usage), np.bool_)


class Vpa(SampledPolicy):
    """Samples use as the VPA does, and restarts or resizes the containers that its updater chooses."""

    name = "vpa"

    def __init__(self, settings: VpaSettings) -> None:
        self.settings = settings
        factor = settings.initial_factor * settings.limit_ratio
        super().__init__(factor, settings.sample_interval_s, settings.update_interval_s)

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Set initial limits: profiled peak × initial_factor × limit_ratio, or the fair share."""
        return self._with_requests(super().start(applications, containers), containers)

    def on_join(self, containers: Join) -> Decision:
        """Start newcomers as `start` does. Containers above the fair share make room in place."""
        return self._with_requests(super().on_join(containers), containers)

    def on_oom(self, event: OomEvents) -> Decision:
        """Record what killed containers would have needed. They start again under their old limits."""
        slots = np.unique(slot(event.ids[self._fleet.roster.member(event.ids)]))
        self.recommender.observe_oom(slots, self._requests(slots)[1], event.at_s)
        # A container without a sample (NaN) has just started.
        self._oom_ran_s.values[slots] = np.fmax(event.at_s - self._running_since_s.values[slots], 0.0)
        self._running_since_s.values[slots] = event.at_s
        return NOTHING

    def _set_up(self, roster: Roster) -> None:
        self.recommender = Recommender(roster, self.settings)
        self._cores_requested = roster.column(0.0, np.float64)
        self._bytes_requested = roster.column(0.0, np.float64)
        self._started_s = roster.column(np.nan, np.float64)
        self._running_since_s = roster.column(np.nan, np.float64)
        self._oom_ran_s = roster.column(np.inf, np.float64)
        self._restarted_s = roster.column(-np.inf, np.float64)
        self._host, self._workload = roster.column(-1, np.int64), roster.column(-1, np.int64)
        # Resizes that wait for room: their times and the requests asked for.
        self._asked_s = roster.column(np.nan, np.float64)
        self._asked = roster.column(np.nan, np.float64, 2)
        self._infeasible = roster.column(np.nan, np.float64, 2)

    def _with_requests(self, decision: Decision, containers: Join) -> Decision:
        """Record the first requests of the newcomers in the decision."""
        s, fleet = self.settings, self._fleet
        new = slot(decision.cpu.ids[len(decision.cpu.ids) - len(containers.app) :])
        for column, limits, peaks in (
            (self._cores_requested, fleet.cpu, containers.peak_cores),
            (self._bytes_requested, fleet.memory, containers.peak_bytes),
        ):
            limit = limits.values[new]
            # A limit that Ω, M or the host cuts does not change the request that the owner asks for.
            asked = limit / s.limit_ratio if peaks is None else peaks * s.initial_factor
            column.values[new] = np.minimum(np.maximum(asked, limit / s.limit_ratio), limit)
        for column, numbers in ((self._host, containers.host), (self._workload, containers.workload)):
            column.values[new] = -1 if numbers is None else numbers
        self._follow_replicas(new)
        decision.cpu.quota_cores[-len(new) :] = fleet.cpu.values[new]
        decision.memory.limit_bytes[-len(new) :] = fleet.memory.values[new]
        return replace(decision, requests=self._cpu_requests(new))

    def _follow_replicas(self, new: Slots) -> None:
        """Give newcomers their workload's history and, unless the mode is off, its recommendation."""
        roster = self._fleet.roster
        numbers = self._workload.values[: roster.size]
        replicas = roster.alive & (numbers >= 0) & np.isin(numbers, numbers[new])
        others = np.setdiff1d(np.flatnonzero(replicas), new)
        others = others[np.argsort(self.recommender.samples(others), kind="stable")]
        eldest = {int(numbers[slot_]): int(slot_) for slot_ in others}
        heirs = np.array([slot_ for slot_ in new.tolist() if int(numbers[slot_]) in eldest], np.int64)
        self.recommender.inherit(heirs, np.array([eldest[int(numbers[heir])] for heir in heirs], np.int64))
        heirs = heirs[self.recommender.known(heirs)]
        if heirs.size and self.settings.update_mode != "off":
            self._put(heirs, self._wanted(heirs, self.recommender.recommend(heirs)))

    def _cpu_requests(self, slots: Slots) -> CpuRequests:
        return CpuRequests(self._fleet.roster.ids[slots], self._requests(slots)[0])

    def _observe(self, slots: Slots, cores: Floats, peak_bytes: Floats, at_s: float) -> None:
        self.recommender.observe_cpu(slots, cores, at_s)
        # The metrics server reports no container without memory: it has not started.
        there = peak_bytes > 0
        self.recommender.observe_memory(slots[there], peak_bytes[there], at_s)
        for column in (self._started_s, self._running_since_s):
            fresh = slots[np.isnan(column.values[slots])]
            column.values[fresh] = at_s - self.settings.sample_interval_s

    def _update(self, at_s: float, period_s: float) -> Decision:
        s, fleet = self.settings, self._fleet
        if s.update_mode in ("off", "initial"):
            return NOTHING
        slots = np.flatnonzero(fleet.roster.alive)
        since = at_s - self._restarted_s.values[slots]
        may_restart = since + period_s / 2 >= s.min_restart_interval_s
        slots = slots[self.recommender.known(slots) & may_restart]
        recommended = self.recommender.recommend(slots)
        wanted, requests = self._wanted(slots, recommended), self._requests(slots)
        asks = worth_updating(
            outside(requests, recommended),
            drift(requests, wanted),
            at_s - self._started_s.values[slots],
            self._oom_ran_s.values[slots],
            s,
        )
        asks &= admitted(requests, wanted, s.evict_when)
        asks &= self._attainable(slots, wanted, requests)
        slots, wanted, target = slots[asks], wanted[:, asks], recommended.target[:, asks]
        if not s.in_place:
            evicted = self._may_evict(slots)
            return self._set(slots[evicted], wanted[:, evicted], at_s, restarts=True)
        return self._resize(slots, wanted, target, at_s)

    def _wanted(self, slots: Slots, recommended: Estimate) -> Floats:
        """Return the requests to set, float64[2, n]: the targets, at most all of the host's cores."""
        cores, size = recommended.target
        return np.stack([np.minimum(cores, self._fleet.roster.host_cores[slots]), size])

    def _may_evict(self, slots: Slots) -> Flags:
        quick_oom = self._oom_ran_s.values[slots] < self.settings.quick_oom_s
        return np.asarray(quick_oom | (self.settings.evict_when != "oom"), np.bool_)

    def _resize(self, slots: Slots, wanted: Floats, target: Floats, at_s: float) -> Decision:
        """Resize containers in place if their nodes have room. Evict those that may not wait any longer.

        wanted: requests to set. target: the recommendation without regard to the node's size. Both float64[2,
        n].
        """
        s, roster = self.settings, self._fleet.roster
        waiting = np.flatnonzero(roster.alive & ~np.isnan(self._asked_s.values[: roster.size]))
        # The kubelet retries by itself what it deferred.
        made = waiting[self._fits(waiting, self._asked.values[waiting].T)]
        retried = self._set(made, self._asked.values[made].T, at_s, restarts=False)
        asked_s = self._asked_s.values[slots]
        infeasible = target[0] > roster.host_cores[slots]
        steps = next_step(s.update_mode, ~np.isnan(asked_s), infeasible, at_s - asked_s, s.resize_patience_s)
        new = (steps == Step.APPROVED) & ~np.isin(slots, made)
        new &= np.isnan(self._infeasible.values[slots, 0]) | worth_another_try(
            self._infeasible.values[slots].T, target
        )
        never = steps == Step.INFEASIBLE
        self._infeasible.values[slots[never]] = target[:, never].T
        evicted = (steps == Step.EVICT) & self._may_evict(slots) & ~np.isin(slots, made)
        evictions = self._set(slots[evicted], wanted[:, evicted], at_s, restarts=True)
        slots, wanted = slots[new], wanted[:, new]
        fits = self._fits(slots, wanted)
        self._asked_s.values[slots[~fits]] = at_s
        self._asked.values[slots[~fits]] = wanted[:, ~fits].T
        resized = self._set(slots[fits], wanted[:, fits], at_s, restarts=False)
        return together(retried, evictions, resized)

    def _fits(self, slots: Slots, wanted: Floats) -> Flags:
        """Return the requests (float64[2, n]) for which their nodes have room, bool[n]."""
        roster = self._fleet.roster
        host = self._host.values[: roster.size]
        placed = roster.alive & (host >= 0)
        taken = np.bincount(host[placed], self._requests(np.flatnonzero(placed))[0], host.max(initial=0) + 1)
        own = host[slots]
        room = np.where(own >= 0, roster.host_cores[slots] - taken[own], np.inf)
        return fitting(own, room, wanted[0] - self._requests(slots)[0])

    def _requests(self, slots: Slots) -> Floats:
        """Return requests, float64[2, n]. A limit that was lowered for a newcomer lowers its request, too."""
        limits = np.stack([self._fleet.cpu.values[slots], self._fleet.memory.values[slots]])
        requested = [self._cores_requested.values[slots], self._bytes_requested.values[slots]]
        return np.asarray(np.minimum(requested, limits), np.float64)

    def _limits(self, slots: Slots, requests: Floats) -> tuple[Floats, Floats]:
        """Return the limits (cores, bytes; float64[n] each) that belong to requests (float64[2, n])."""
        fleet, s = self._fleet, self.settings
        if s.controlled_values == "requests_only":
            return fleet.cpu.values[slots], fleet.memory.values[slots]
        cores, size = requests * s.limit_ratio
        return np.minimum(cores, fleet.roster.host_cores[slots]), size

    def _attainable(self, slots: Slots, wanted: Floats, requests: Floats) -> Flags:
        """Return the updates that change at least one limit or request, bool[n].

        wanted, requests: recommended requests and those in force, float64[2, n].
        """
        fleet, s = self._fleet, self.settings
        cores, size = self._limits(slots, wanted)
        size = fleet.memory.attainable(slots, size)
        granted = np.minimum(wanted, np.stack([fleet.cpu.attainable(slots, cores), size]))
        acts = (granted == wanted).all(axis=0) | (drift(requests, granted) >= s.update_threshold)
        if s.in_place:
            acts &= ~refused(fleet.memory.values[slots], size, self._usage.memory_bytes[slots])
        return np.asarray(acts, np.bool_)

    def _put(self, slots: Slots, wanted: Floats) -> tuple[Flags, Flags]:
        """Put requests (float64[2, n]) and their limits in force, as far as Ω and M allow.

        Returns which CPU and which memory limits changed, bool[n] each.
        """
        fleet = self._fleet
        cores, size = self._limits(slots, wanted)
        changed = fleet.cpu.change(slots, cores), fleet.memory.change(slots, size)
        self._cores_requested.values[slots], self._bytes_requested.values[slots] = wanted
        return changed

    def _set(self, slots: Slots, wanted: Floats, at_s: float, *, restarts: bool) -> Decision:
        """Return the decision that puts requests (float64[2, n]) in force, with restarts or in place."""
        if not slots.size:
            return NOTHING
        fleet, before = self._fleet, self._requests(slots)
        cpu_changed, memory_changed = self._put(slots, wanted)
        self._asked_s.values[slots] = np.nan
        self._infeasible.values[slots] = np.nan
        requested = (self._requests(slots) != before).any(axis=0)
        changed = requested | cpu_changed | memory_changed
        quick_oom = self._oom_ran_s.values[slots] < self.settings.quick_oom_s
        reason = np.where(quick_oom, Reason.OOM_BUMP, Reason.RECOMMENDED).astype(np.uint8)
        self._note_update(slots[changed], at_s, restarts=restarts)
        return Decision(
            cpu=fleet.cpu_limits(slots[cpu_changed], Reason.RECOMMENDED),
            memory=fleet.memory_limits(slots[memory_changed], reason[memory_changed]),
            restart=fleet.roster.ids[slots[changed]] if restarts else NO_IDS,
            requests=self._cpu_requests(slots[requested]),
        )

    def _note_update(self, slots: Slots, at_s: float, *, restarts: bool) -> None:
        """Record updates made at at_s. A container that is resized in place keeps its start time."""
        self._restarted_s.values[slots] = at_s
        if restarts:
            self._started_s.values[slots] = at_s
            self._running_since_s.values[slots] = at_s
            self._oom_ran_s.values[slots] = np.inf
