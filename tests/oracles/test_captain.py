"""The Captain against the limits that its authors' published code gives, tick by tick."""

import numpy as np

from control.allocator.autothrottle import AutothrottleSettings, captain_rule
from control.allocator.autothrottle_captain import Captain
from control.allocator.model import Reason
from control.allocator.roster import Roster
from tests.control.allocator.fleets import LEAST_CORES, application, join
from tests.oracles.vectors import series, vectors

FIRST = np.array([0])


@vectors("autothrottle_captain/captain")
def test_limits_and_margins_are_those_of_the_published_code(vector):
    roster = Roster([application()])
    captain = Captain(roster, captain_rule(AutothrottleSettings()))
    roster.join(join([0]))
    targets = series([[0, vector["target"]], *vector["target_updates"]], len(vector["usage_cores"]))
    quota = np.array([vector["initial_limit_cores"]])
    limits, margins = [quota[0]], [captain.margin.values[0]]
    rolled_back = []
    for tick, (used, throttled) in enumerate(
        zip(vector["usage_cores"], vector["throttled"], strict=True), start=1
    ):
        captain.observe(FIRST, np.array([bool(throttled)]), np.array([used]))
        wanted = captain.decide(captain.deciding(FIRST), quota, targets[tick : tick + 1])
        quota[wanted.slots] = np.maximum(wanted.cores, LEAST_CORES)
        if quota[0] != limits[-1] and Reason.ROLLED_BACK in wanted.reason:
            rolled_back.append(tick)
        limits.append(quota[0])
        margins.append(captain.margin.values[0])
    ticks = len(vector["usage_cores"])
    np.testing.assert_allclose(limits, series(vector["limits_cores"], ticks), rtol=1e-6)
    np.testing.assert_allclose(margins, series(vector["margins"], ticks), rtol=1e-6, atol=1e-9)
    in_the_window = set(vector["roll_backs_at"]) - set(vector["roll_backs_at_a_window_end"])
    assert in_the_window <= set(rolled_back) <= set(vector["roll_backs_at"])
