from __future__ import annotations

import numpy as np

from control.shared_cluster import Use
from lab.cluster.run.reserving import hours, read
from studies.cluster import sharing


def test_the_page_says_who_leaves_and_where_everybody_stays() -> None:
    # Users 0 and 1 use 6 and 2 of 8 unit-hours at once, on one unit each.
    use = Use(np.array([0, 1]), np.zeros(2), np.array([6.0, 2.0]) * 3600, np.ones(2, np.int64))
    text = sharing.document([sharing.Data("two", use, 1, 6 * 3600.0)])
    # Three machines are 18 unit-hours, which cost 10.8 with 40 % off: more than what is used
    # costs on demand, which is 8.
    assert "| two | 0.5 | 40% | usage | 3 | 2 of 2 | 1 | 0 | 1.35 → 1.35 |" in text
    # One machine: user 1 waits 6 h, which is 3 times its run time. 6 unit-hours for 8 need no discount; flat,
    # each pays 3, and user 1 would pay 2.
    assert "| two | 1 | 1.33 | none is needed | 33.3% |" in text


def test_the_window_of_a_log_is_that_of_the_verb(tmp_path) -> None:
    (tmp_path / "log.csv").write_text("submit_s,duration_s,gpus,queue\n0,7200,1,a\n10,60,1,b\n")
    log = read(tmp_path / "log.csv", "csv")
    given = sharing.of_log("log", log, np.array([0, 1]), 8)
    assert given.horizon_s == hours(log) * 3600 == 7200
