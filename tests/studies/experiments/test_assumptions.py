"""Edits of applications change what they say and nothing else."""

from copy import deepcopy

from studies.experiments.assumptions import at_most, demand, memory

SHARED = {"base_mib": 8, "request_kib": 16}
APP = {
    "name": "shop",
    "defaults": {"threads": 20, "memory": {"request_kib": 128}},
    "services": {
        "web": {
            "handlers": {"home": {"cpu_ms": 2.0, "distribution": "lognormal", "cv": 0.5, "calls": ["a.get"]}}
        },
        "a": {"threads": 1, "memory": SHARED, "handlers": {"get": {"cpu_ms": 1.0}}},
        "b": {"memory": SHARED, "handlers": {"get": {"cpu_ms": 1.0}}},
    },
}


def edited(edit):
    before = deepcopy(APP)
    changed = edit(APP)
    assert before == APP
    return changed


def test_demands_are_drawn_otherwise_with_their_means_kept():
    services = edited(demand(distribution="fixed"))["services"]
    assert services["web"]["handlers"]["home"] == {"cpu_ms": 2.0, "calls": ["a.get"], "distribution": "fixed"}
    assert services["a"]["handlers"]["get"] == {"cpu_ms": 1.0, "distribution": "fixed"}


def test_memory_per_request_is_multiplied_once_where_services_share_a_mapping():
    changed = edited(memory(4))
    assert changed["defaults"]["memory"] == {"request_kib": 512}
    assert [changed["services"][name]["memory"]["request_kib"] for name in "ab"] == [64, 64]
    assert "memory" not in changed["services"]["web"]


def test_a_cap_lowers_what_is_above_it():
    changed = edited(at_most("threads", 4))
    assert changed["defaults"]["threads"] == 4
    assert changed["services"]["a"]["threads"] == 1
