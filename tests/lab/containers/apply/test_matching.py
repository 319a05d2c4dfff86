"""Which containers a row means: what agrees exactly, or what --map says."""

from __future__ import annotations

import pytest

from lab.containers.apply.matching import match
from lab.containers.apply.ports import Candidate
from tests.lab.containers.apply.apply_world import advice, row
from twinbed import ScenarioError

IN_A_POD = {
    "io.kubernetes.pod.name": "web-7d4b9c6f5-x2k4z",
    "io.kubernetes.pod.namespace": "shop",
    "io.kubernetes.container.name": "app",
}
OF_ANOTHER = IN_A_POD | {"io.kubernetes.pod.name": "web-api-7d4b9c6f5-x2k4z"}
"""A pod of the workload web-api, whose name begins like that of web."""
COMPOSE = {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"}


class Places:
    kind = "host"

    def __init__(self, *candidates: Candidate) -> None:
        self._candidates = candidates

    def candidates(self):
        return self._candidates

    def named(self, text: str) -> list[str]:
        return [f"{text}-1", f"{text}-2"] if text.startswith("compose:") else [text]


@pytest.mark.parametrize(
    ("of", "candidate"),
    [
        (row("web"), Candidate("docker:web", "web")),
        (row("x", members=["web"]), Candidate("docker:web", "web")),
        (row("shop/web"), Candidate("docker:shop-web-1", "shop-web-1", COMPOSE)),
        (row("x", namespace="shop", workload="web"), Candidate("docker:c", "c", COMPOSE)),
        (row("x", namespace="shop", workload="web", container="app"), Candidate("docker:k", "k", IN_A_POD)),
        (row("x", workload="shop", container="web"), Candidate("podman:shop-web", "shop-web", {}, "shop")),
    ],
)
def test_names_and_labels_that_agree_exactly_count(of, candidate):
    assert match(advice(of), [of], Places(candidate), []) == {of.name: [candidate.name]}


@pytest.mark.parametrize(
    ("of", "candidate"),
    [
        (row("web"), Candidate("docker:web-1", "web-1")),
        (row("we"), Candidate("docker:web", "web")),
        (row("x", workload="we", container="app"), Candidate("docker:k", "k", IN_A_POD)),
        (row("x", namespace="o", workload="web", container="app"), Candidate("docker:k", "k", IN_A_POD)),
        (row("x", namespace="shop", workload="web", container="b"), Candidate("docker:k", "k", IN_A_POD)),
        (row("x", namespace="shop", workload="web", container="app"), Candidate("docker:k", "k", OF_ANOTHER)),
        (row("x"), Candidate("docker:c", "c", {})),
        (row("x", workload="", container=""), Candidate("podman:-", "-", {}, "")),
    ],
)
def test_parts_of_names_do_not(of, candidate):
    assert match(advice(of), [of], Places(candidate), []) == {of.name: []}


def test_as_many_rows_as_containers_are_matched_in_linear_work():
    class Counted(dict):
        asked = 0

        def get(self, key, default=None):
            Counted.asked += 1
            return super().get(key, default)

    count = 10_000
    rows = [row(f"shop/c{number}") for number in range(count)]
    labels = [COMPOSE | {"com.docker.compose.service": f"c{number}"} for number in range(count)]
    there = [Candidate(f"docker:{i}", f"{i}", Counted(own)) for i, own in enumerate(labels)]
    meant = match(advice(*rows), rows, Places(*there), [])
    assert meant == {f"shop/c{number}": [f"docker:{number}"] for number in range(count)}
    assert Counted.asked <= 5 * count


def test_a_map_stands_in_place_of_what_a_name_would_mean():
    web = row("web")
    places = Places(Candidate("docker:web", "web"))
    assert match(advice(web), [web], places, []) == {"web": ["docker:web"]}
    maps = ["web=compose:shop/web", "web=docker:c"]
    meant = match(advice(web), [web], places, maps)
    assert meant == {"web": ["compose:shop/web-1", "compose:shop/web-2", "docker:c"]}


def test_a_container_that_a_map_gives_to_a_row_is_no_other_rows_by_its_name():
    rows = [row("web-1"), row("web-2")]
    places = Places(Candidate("docker:web-1", "web-1"), Candidate("docker:web-2", "web-2"))
    meant = match(advice(*rows), rows, places, ["web-1=docker:web-2", "web-1=docker:web-1"])
    assert meant == {"web-1": ["docker:web-2", "docker:web-1"], "web-2": []}
    with pytest.raises(ScenarioError, match="both match it"):
        match(advice(*rows), rows, places, ["web-1=docker:a", "web-2=docker:a"])


def test_one_container_of_two_rows_is_refused_with_both_names():
    rows = [row("web"), row("other", members=["web"])]
    with pytest.raises(ScenarioError, match=r"docker:web: rows 'web' and 'other' both match it"):
        match(advice(*rows), rows, Places(Candidate("docker:web", "web")), [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wbe=docker:web", "no row 'wbe'; did you mean 'web'"),
        ("zz=docker:web", "no row 'zz'; it has 1 rows, such as 'web'"),
        ("docker:web", "expected ROW=NAME"),
        ("web=", "expected ROW=NAME"),
    ],
)
def test_a_map_that_is_wrong_is_refused(text, said):
    with pytest.raises(ScenarioError, match=said):
        match(advice(row("web")), [row("web")], Places(), [text])
