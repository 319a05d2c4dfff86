"""NCCL's defaults by version: a table that folds, and what a scenario changes of it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.ask.scenario import build, expand, with_overrides
from lab.fabric import nccl
from lab.fabric.calibrate.values import load_calibration
from lab.fabric.run.world import build_world
from tests.lab.fabric.sample_fabric import SENDS
from twinbed import ScenarioError

SEQUENCE = "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE"
CHANGES = sorted({row.first for row in nccl.table()})
PATCHES = st.tuples(st.just(2), st.integers(3, 30), st.integers(0, 9))


def text(version):
    return ".".join(map(str, version))


@given(PATCHES.filter(lambda version: (2, 3, 5) <= version <= (2, 30, 7)))
def test_a_version_has_the_defaults_of_the_last_change_before_it(version):
    last = max(change for change in CHANGES if change <= version)
    assert nccl.defaults(text(version)) == nccl.defaults(text(last))


def test_every_change_changes_something():
    before = [nccl.defaults(text(change)) for change in CHANGES]
    assert all(one != other for one, other in pairwise(before))


@pytest.mark.parametrize(
    ("version", "timeout"),
    [
        ("2.3.5", 14), ("2.13.4", 14), ("2.14.3", 18), ("2.14", 18), ("2.18", 18), ("2.22.3", 18),
        ("2.23.4", 20), ("2.30.7", 20), ("2.30", 20),
    ],
)  # fmt: skip
def test_the_timeout_grew_twice(version, timeout):
    assert nccl.defaults(version)["NCCL_IB_TIMEOUT"] == timeout
    assert nccl.defaults(version)["NCCL_IB_RETRY_CNT"] == 7


def test_a_switch_that_was_turned_off_again():
    split = [
        nccl.defaults(version).get("NCCL_IB_SPLIT_DATA_ON_QPS") for version in ("2.17.1", "2.18.1", "2.20.3")
    ]
    assert split == [None, 1, 0]


@pytest.mark.parametrize("version", ["2.3.4", "1.9.9", "2.30.8", "2.31.0", "2.31", "3.0"])
def test_versions_that_nobody_read_are_refused(version):
    with pytest.raises(ScenarioError, match=r"nccl\.version.*2\.3\.5 to 2\.30\.7"):
        nccl.defaults(version)


@pytest.mark.parametrize("version", ["", "latest", "2", "2.18.1.4", "v2.18.1", "２.18.1"])
def test_what_is_no_version_is_refused(version):
    with pytest.raises(ScenarioError, match=r"nccl\.version"):
        nccl.defaults(version)


def test_a_variable_that_nothing_reads_is_said():
    assert nccl.notes({nccl.UNUSED: 7, "NCCL_IB_TC": 1}) == [
        f"{nccl.UNUSED} changes nothing: NCCL never reads it."
    ]


def test_the_shipped_calibration_is_nccl_s_last_version():
    values, known = load_calibration().values, nccl.defaults(nccl.LAST)
    assert values["queue_pair.timeout"].value == known["NCCL_IB_TIMEOUT"]
    assert values["queue_pair.retry_count"].value == known["NCCL_IB_RETRY_CNT"]


def pair(*changes):
    raw = {**SENDS, "policies": ["thorn"], "fabric": {**SENDS["fabric"], "values": {}}}
    made = build_world(expand(with_overrides(build(raw), changes))[0]).fabric.queue_pair
    return made.timeout, made.retry_count


def test_a_scenario_names_a_version_and_replaces_any_variable():
    assert pair() == (20, 7)
    assert pair("fabric.nccl={version: 2.18.1}") == (18, 7)
    both = "fabric.nccl={version: 2.13.4, variables: {NCCL_IB_TIMEOUT: 16, NCCL_IB_RETRY_CNT: 3}}"
    assert pair(both) == (16, 3)
    assert pair("fabric.nccl={variables: {NCCL_IB_RETRY_CNT: 5}}") == (20, 5)
    assert pair("fabric.nccl={version: 2.18.1}", "fabric.values.queue_pair.timeout=14") == (14, 7)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("{version: 2.3.4}", r"fabric\.nccl: version: 2\.3\.4"),
        ("{variables: {NCCL_IB_TIMOUT: 20}}", "did you mean 'NCCL_IB_TIMEOUT'"),
        ("{variables: {QPS: 20}}", "has no such variable; its names are such as NCCL_"),
        ("{variables: {NCCL_IB_QPS: 4}}", "has no such variable; its names are such as NCCL_IB_QPS_PER_CON"),
        ("{version: 2.18.1, variables: {NCCL_IB_ECE_ENABLE: 1}}", r"from 2\.23\.4 on, not in 2\.18\.1"),
        ("{variables: {rnr_retry: 3}}", "NCCL sets it to 7"),
        ("{variables: {NCCL_IB_TIMEOUT: soon}}", "'soon' is not a whole number without quotes"),
        ("{variables: {NCCL_NET_MERGE_LEVEL: 3}}", "3 is not text"),
        ("{variables: {NCCL_IB_QPS_PER_CONNECTION: 0}}", "0 is not one of 1 to 128"),
        ("{variables: {NCCL_IB_TIMEOUT: 32}}", "32 is not one of 0 to 31"),
        (f"{{variables: {{{SEQUENCE}: 11}}}}", "11 is not one of 1 to 10"),
        ("{versions: 2.18.1}", r"fabric\.nccl\.versions"),
    ],
)
def test_what_nccl_has_not_is_refused_with_its_key(asked, said):
    with pytest.raises(ScenarioError, match=said):
        pair(f"fabric.nccl={asked}")


def test_queue_pairs_wait_longer_in_newer_versions() -> None:
    assert nccl.queue_pairs() == {"2.3.5": (14, 7), "2.14.3": (18, 7), "2.23.4": (20, 7)}
