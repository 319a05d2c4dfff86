"""The Kubernetes Vertical Pod Autoscaler: percentiles of decaying histograms, put in force by restarts.

For: the updater and the admission controller as one allocator. Not for: what is recommended
(vpa_recommender.py) nor the application's global limits, which Kubernetes does not have (cap.py).

Source: kubernetes/autoscaler, vertical-pod-autoscaler/pkg/updater/priority and pkg/admission-controller.

A container has a *request* and a *limit* of each resource. The VPA learns from usage what it should request.
It sets the request, and the limit in proportion: `limit_ratio` times the request (controlledValues
RequestsAndLimits), or not at all (RequestsOnly). Backends enforce limits. A request reserves nothing here, as
no scheduler places containers; it is what the recommendation is compared with.

Requests and limits change when the updater evicts a container:

- the request is outside the recommended bounds, or
- the container was killed for memory within `quick_oom_s` of its start, and the update changes something, or
- it is at least `min_age_s` old and the request differs by at least `update_threshold` from the target.

A container that is killed for memory starts again under its old limit.

**What Ω and M mean here.** They bound the sum of *limits*, as a namespace's ResourceQuota for limits.cpu and
limits.memory would. Limits of twice the request may add up to more. Then raises share what is left (cap.py),
so a limit gets less than its ratio, and less than its request only where there is not even that: the request
is then as small as the limit. Neither backend ever sees limits above Ω or M.

Ours differs from Kubernetes in what docs/decisions/0033-vpa-as-kubernetes.md lists. Above all: every
container is a pod of its own, and a request that a limit cuts is worth a restart only if it still moves by
`update_threshold`.

`in_place` is the VPA's updateMode InPlaceOrRecreate (AEP-4016) on in-place pod resize, stable in Kubernetes
1.35 (KEP-1287). It changes limits under the same conditions as a restart would, and a change starts the
twelve hours anew as well (AEP-4016), but nothing restarts. The kubelet refuses a resize that lowers the
memory limit to the usage or below, because the kernel would refuse it (cgroup v1) or kill (v2). CPU then
waits, too, and the next update asks again. "Usage" is what the telemetry last said, up to a period and its
delay old. The kubelet reads it at the node.

Memory: 1.6 kB per container, of which the recommender takes 1.5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import (
    NO_IDS,
    NOTHING,
    Application,
    Decision,
    Flags,
    Floats,
    Join,
    OomEvents,
    Reason,
    slot,
)
from control.allocator.roster import Roster
from control.allocator.sampled import SampledPolicy
from control.allocator.vpa_recommender import Estimate, Recommender
from control.allocator.vpa_settings import VpaSettings

Slots = NDArray[np.int64]


def drift(requests: Floats, targets: Floats) -> Floats:
    """Return the sum over resources of |request − target| / request, float64[n]; both: float64[2, n]."""
    return np.asarray((abs(requests - targets) / requests).sum(axis=0), np.float64)


def outside(requests: Floats, estimate: Estimate) -> Flags:
    """Return whether some request (float64[2, n]) is outside its recommended bounds, bool[n]."""
    return np.asarray(((requests < estimate.lower) | (requests > estimate.upper)).any(axis=0), np.bool_)


def worth_updating(
    outside: Flags, drift: Floats, age_s: Floats, oom_ran_s: Floats, settings: VpaSettings
) -> Flags:
    """Return the updater's choice, bool[n].

    outside: a request is outside its bounds. drift: as the function of that name. age_s: time since the last
    update or the start, s. oom_ran_s: how long the container ran before its last OOM kill, s; infinite if
    there was none.
    """
    due = (age_s >= settings.min_age_s) & (drift >= settings.update_threshold)
    quick_oom = oom_ran_s < settings.quick_oom_s
    return np.asarray((outside | quick_oom | due) & ~(quick_oom & (drift == 0.0)), np.bool_)


def refused(limit: Floats, new_limit: Floats, usage: Floats) -> Flags:
    """Return which memory limits (bytes, float64[n]) the kubelet does not change in place, bool[n]."""
    return np.asarray((new_limit < limit) & (new_limit <= usage), np.bool_)


class Vpa(SampledPolicy):
    """The VPA as an allocator: it samples, and restarts or resizes what the updater chooses."""

    name = "vpa"

    def __init__(self, settings: VpaSettings) -> None:
        self.settings = settings
        factor = settings.initial_factor * settings.limit_ratio
        super().__init__(factor, settings.sample_interval_s, settings.update_interval_s)

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Set initial limits of the profiled peak × initial_factor × limit_ratio, or the fair share."""
        return self._with_requests(super().start(applications, containers), containers)

    def on_join(self, containers: Join) -> Decision:
        """Start newcomers as in `start`. Containers above the fair share make room in place."""
        return self._with_requests(super().on_join(containers), containers)

    def on_oom(self, event: OomEvents) -> Decision:
        """Count what killed containers would have needed. They start again under their old limits."""
        slots = np.unique(slot(event.ids[self._fleet.roster.member(event.ids)]))
        self.recommender.observe_oom(slots, self._requests(slots)[1], event.at_s)
        # A container of which there is no sample yet (NaN) has just started.
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

    def _with_requests(self, decision: Decision, containers: Join) -> Decision:
        """Note the first requests of the newcomers that the decision starts."""
        s, fleet = self.settings, self._fleet
        new = slot(decision.cpu.ids[len(decision.cpu.ids) - len(containers.app) :])
        for column, limits, peaks in (
            (self._cores_requested, fleet.cpu, containers.peak_cores),
            (self._bytes_requested, fleet.memory, containers.peak_bytes),
        ):
            limit = limits.values[new]
            # A limit that Ω, M or the host cuts lets the request be what its owner asks for.
            asked = limit / s.limit_ratio if peaks is None else peaks * s.initial_factor
            column.values[new] = np.minimum(np.maximum(asked, limit / s.limit_ratio), limit)
        return decision

    def _sample(self, at_s: float) -> None:
        slots, cores, peak = self._usage.take()
        self.recommender.observe_cpu(slots, cores, at_s)
        self.recommender.observe_memory(slots, peak, at_s)
        for column in (self._started_s, self._running_since_s):
            fresh = slots[np.isnan(column.values[slots])]
            column.values[fresh] = at_s - self.settings.sample_interval_s

    def _update(self, at_s: float, period_s: float) -> Decision:
        s, fleet = self.settings, self._fleet
        slots = np.flatnonzero(fleet.roster.alive)
        since = at_s - self._restarted_s.values[slots]
        may_restart = since + period_s / 2 >= s.min_restart_interval_s
        slots = slots[self.recommender.known(slots) & may_restart]
        recommended = self.recommender.recommend(slots)
        cores, size = recommended.target
        wanted = np.stack([np.minimum(cores, fleet.roster.host_cores[slots]), size])
        requests = self._requests(slots)
        asks = worth_updating(
            outside(requests, recommended),
            drift(requests, wanted),
            at_s - self._started_s.values[slots],
            self._oom_ran_s.values[slots],
            s,
        )
        slots, wanted = slots[asks], wanted[:, asks]
        acts = self._attainable(slots, wanted, requests[:, asks])
        return self._set(slots[acts], wanted[:, acts], at_s)

    def _requests(self, slots: Slots) -> Floats:
        """Return requests, float64[2, n]. A limit that was lowered for a newcomer takes its request along."""
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
        """Return which updates can be made and are not cut to nothing, bool[n].

        wanted, requests: what is recommended and what is in force, float64[2, n].
        """
        fleet, s = self._fleet, self.settings
        cores, size = self._limits(slots, wanted)
        size = fleet.memory.attainable(slots, size)
        granted = np.minimum(wanted, np.stack([fleet.cpu.attainable(slots, cores), size]))
        acts = (granted == wanted).all(axis=0) | (drift(requests, granted) >= s.update_threshold)
        if s.in_place:
            acts &= ~refused(fleet.memory.values[slots], size, self._usage.memory_bytes[slots])
        return np.asarray(acts, np.bool_)

    def _set(self, slots: Slots, wanted: Floats, at_s: float) -> Decision:
        """Put requests (float64[2, n]) and their limits in force, as far as Ω and M allow."""
        fleet, before = self._fleet, self._requests(slots)
        cores, size = self._limits(slots, wanted)
        cpu_changed, memory_changed = fleet.cpu.change(slots, cores), fleet.memory.change(slots, size)
        self._cores_requested.values[slots], self._bytes_requested.values[slots] = wanted
        changed = (self._requests(slots) != before).any(axis=0) | cpu_changed | memory_changed
        quick_oom = self._oom_ran_s.values[slots] < self.settings.quick_oom_s
        reason = np.where(quick_oom, Reason.OOM_BUMP, Reason.RECOMMENDED).astype(np.uint8)
        restart = self._note_update(slots[changed], at_s)
        return Decision(
            cpu=fleet.cpu_limits(slots[cpu_changed], Reason.RECOMMENDED),
            memory=fleet.memory_limits(slots[memory_changed], reason[memory_changed]),
            restart=restart,
        )

    def _note_update(self, slots: Slots, at_s: float) -> NDArray[np.int64]:
        """Note updates of now. Returns the ids of the containers that restart for them."""
        self._restarted_s.values[slots] = at_s
        self._started_s.values[slots] = at_s
        if self.settings.in_place:
            return NO_IDS
        self._running_since_s.values[slots] = at_s
        self._oom_ran_s.values[slots] = np.inf
        return self._fleet.roster.ids[slots]
