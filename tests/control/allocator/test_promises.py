"""What every recommending policy promises, whatever comes and goes and in whatever order."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from control.allocator import make
from control.allocator.model import Application
from control.allocator.ports import ServiceAware
from lab.check.driven_fleet import DrivenFleet
from lab.check.histories import APPLICATIONS, STEPS, take
from tests.control.allocator.fleets import served

_SAMPLED = {"sample_interval_s": 0.2, "update_interval_s": 0.4}
_VPA = _SAMPLED | {"min_restart_interval_s": 1.0, "min_age_s": 0.5}
EAGER = {
    "vpa": ("vpa", _VPA),
    "vpa in place": ("vpa", _VPA | {"update_mode": "in_place"}),
    "vpa requests only": ("vpa", _VPA | {"controlled_values": "requests_only"}),
    "autopilot ml": ("autopilot", _SAMPLED | {"recommender": "ml"}),
    "autopilot window": ("autopilot", _SAMPLED | {"recommender": "moving_window"}),
    "k8s-cpu": ("k8s-cpu", {"interval_s": 0.4, "window_s": 2.0}),
    "autothrottle": ("autothrottle", {"window": 3, "history": 6, "tower_interval_s": 1.0, "slo_p99_s": 0.1}),
    "firm": ("firm", {"window_s": 1.0, "room_s": 1.0}),
}
RESTARTING = {"vpa", "vpa requests only"}
ALL = pytest.mark.parametrize("policy", EAGER)


@ALL
@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_promises_hold_whatever_comes_and_goes(policy, data, seed):
    random = np.random.default_rng(seed)
    allocator = make(*EAGER[policy])
    period_s = data.draw(st.sampled_from([0.05, 0.1, 0.2]))
    fleet = DrivenFleet(allocator, APPLICATIONS, random.integers(0, 2, 5).tolist(), period_s=period_s)
    ghosts: list[int] = []
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=18)):
        take(fleet, step, random, ghosts)
    assert policy in RESTARTING or not fleet.restarts
    times: dict[int, float] = {}
    for at_s, container in fleet.restarts:
        # Groups report between the periods' ends, and an interval is over to half a period (Interval.over).
        assert at_s - times.get(container, -9.0) >= 1.0 - period_s / 2 - 1e-6
        times[container] = at_s


@pytest.mark.slow
@ALL
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=1031)  # Autothrottle has all of Ω in every interval, but for the last bit
def test_the_containers_order_does_not_matter(policy, seed):
    random = np.random.default_rng(seed)
    order = random.permutation(6)
    scale, app = random.gamma(1.0, 1.0, 6), random.integers(0, 2, 6)
    applications = [Application("a", 5.0, 2 << 30), Application("b", 9.0, 4 << 30)]
    results = []
    for places in (np.arange(6), order):
        allocator = make(*EAGER[policy])
        fleet = DrivenFleet(allocator, applications, app[places].tolist())
        by_place = dict(zip(places.tolist(), fleet.ids, strict=True))
        for t in range(60):
            usage = {
                container: (scale[place] * (t % 7), int(3e8 * scale[place]))
                for place, container in by_place.items()
            }
            fleet.period(dict(reversed(usage.items())) if places is order else usage)
            if t % 10 == 9 and isinstance(allocator, ServiceAware):
                allocator.on_service(served([20.0, 50.0], [0.05, 0.2], fleet.at_s))
        results.append([(fleet.cores[by_place[p]], fleet.bytes[by_place[p]]) for p in range(6)])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-9)
