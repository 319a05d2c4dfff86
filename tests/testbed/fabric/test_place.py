"""An agent finds by itself what it serves."""

from __future__ import annotations

import pytest

from testbed.fabric.dumps import Link
from testbed.fabric.place import place_of
from twinbed import BackendError

HERE = (10 << 24) | 9


def tunnel(ifindex: int, bridge: int, vni: int, local: int = HERE) -> Link:
    return Link(f"vx{vni}", ifindex, master=bridge, kind="vxlan", vni=vni, local=local)


def test_representors_are_the_other_ports_of_a_tunnels_bridge() -> None:
    place = place_of(
        [
            Link("br1", 2, kind="bridge"),
            tunnel(3, 2, 100),
            Link("br2", 4, kind="bridge"),
            tunnel(5, 4, 200),
            Link("vf1", 9, master=4, kind="veth"),
            Link("vf0", 8, master=2, kind="veth"),
            Link("elsewhere", 10, master=77, kind="veth"),
            Link("out", 11, kind="vxlan", external=True),
        ]
    )
    assert place.tenants == ((8, 100), (9, 200))
    assert place.local == HERE
    assert place.representors.vni.tolist() == [100, 200]


def test_a_host_without_applications_has_none() -> None:
    assert place_of([tunnel(3, 2, 100)]).devices == ()


@pytest.mark.parametrize(
    "links",
    [[], [tunnel(3, 0, 100)], [tunnel(3, 2, 100, local=0)], [tunnel(3, 2, 100), tunnel(4, 5, 200, local=7)]],
    ids=["nothing", "no bridge", "no address", "two addresses"],
)
def test_where_there_is_nothing_to_serve_the_cure_is_said(links: list[Link]) -> None:
    with pytest.raises(BackendError, match="run it in a host's namespace, after twinbed testbed up"):
        place_of(links)
