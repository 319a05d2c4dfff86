"""CPU requests as weights, against values that Kubernetes' formulas give."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from control.allocator.shares import shares, weight


def test_shares_are_those_of_kubernetes():
    requests = np.array([0.0, 0.0004, 0.001, 0.1, 0.25, 0.5, 1.0, 64.0, 300.0])
    # 0.4 m counts as 1 m, which is 1 share, below the kernel's least of 2; 300 cores exceed its most.
    assert shares(requests).tolist() == [2, 2, 2, 102, 256, 512, 1024, 65_536, 262_144]


def test_weights_are_those_of_kubernetes():
    # 1 + (shares - 2) * 9999 / 262142, rounded down, as in KEP-2254: a core is 39.
    assert weight(np.array([2, 102, 512, 1024, 262_144])).tolist() == [1, 4, 20, 39, 10_000]


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=9))
def test_a_larger_request_never_weighs_less(requests):
    made = shares(np.sort(np.array(requests)))
    assert (np.diff(made) >= 0).all()
    assert (np.diff(weight(made)) >= 0).all()
    assert 1 <= weight(made).min() <= weight(made).max() <= 10_000
