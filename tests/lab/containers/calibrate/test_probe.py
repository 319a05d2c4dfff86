"""What a probe says of a machine that is, or is not, the calibrated one."""

from dataclasses import replace

import pytest

from lab.containers.calibrate import probe
from lab.containers.calibrate.probe import Look, Probe
from lab.containers.calibrate.values import load_calibration
from testbed.containers import machine

SAME = Look("Linux 6.18.44-fc-v669, cgroup v1", 1e6, 3e-6)


def beside(**here) -> Probe:
    return Probe("mine", replace(SAME, **here), SAME)


@pytest.mark.parametrize(
    "here",
    [
        {},
        {"core_speed": 1.09e6},
        {"core_speed": 0.91e6},
        {"quota_write_s": 0.0009},
        {"kernel": "Linux 6.18.2 (Debian), cgroup v1 cpu and memory"},
    ],
)
def test_small_differences_fit(here):
    assert not list(beside(**here).misfits())
    assert (
        beside(**here).sentence
        == "Calibration 'mine' fits this machine in a core's speed, kernel and quota writes."
    )


@pytest.mark.parametrize(
    ("here", "said"),
    [
        ({"core_speed": 1.34e6}, "a core is 34% faster here"),
        ({"core_speed": 0.5e6}, "a core is 50% slower here"),
        ({"kernel": "Linux 6.1.0-13, cgroup v1"}, "the kernel is Linux 6.1.0-13, cgroup v1 here"),
        ({"kernel": "Linux 6.18.1, cgroup v2"}, "the kernel is Linux 6.18.1, cgroup v2 here"),
        ({"quota_write_s": 0.0021}, "a quota write takes 2.10 ms here, for 0.00 ms"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line_with_the_cure(here, said):
    sentence = beside(**here).sentence
    assert said in sentence
    assert "twinbed validate --calibrate" in sentence
    assert "\n" not in sentence


def test_a_calibration_that_does_not_know_its_cores_does_not_fit():
    assert list(Probe("old", SAME, replace(SAME, core_speed=None)).misfits()) == [
        "it does not say how fast a core was"
    ]


def test_both_looks_are_kept():
    plain = beside(core_speed=2e6).plain()
    assert (plain["core_speed_here"], plain["core_speed_calibrated"], plain["fits"]) == (2e6, 1e6, False)


def test_a_core_has_about_the_speed_that_it_had_before():
    first, second = machine.core_speed(0.1), machine.core_speed(0.1)
    assert first == pytest.approx(second, rel=0.5)


@pytest.mark.root
def test_a_real_probe_takes_less_than_two_seconds_and_sees_this_machine(cgroups):
    seen = probe.probe(load_calibration())
    assert seen.here.core_speed > 1e4
    assert 0 < seen.here.quota_write_s < 0.1
    assert seen.here.kernel.startswith("Linux")
