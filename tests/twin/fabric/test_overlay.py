import pytest

from control.fabric import VXLAN_OVERHEAD_BYTES
from twin.fabric.model import Scheme
from twin.fabric.overlay import goodput_bps, wire_bytes


def test_a_tunnel_costs_fifty_bytes_a_packet():
    assert VXLAN_OVERHEAD_BYTES == 50
    # 4096 + 58 of RoCEv2 + 24 of Ethernet on the wire.
    assert wire_bytes(4096, Scheme.BOND) == 4178
    assert wire_bytes(4096, Scheme.THORN) == wire_bytes(4096, Scheme.THORN_SOFTWARE) == 4228


def test_goodput_of_a_busy_link():
    assert goodput_bps(100e9, 4096, Scheme.NONE) == pytest.approx(100e9 * 4096 / 4178)
    lost = 1 - goodput_bps(100e9, 4096, Scheme.THORN) / goodput_bps(100e9, 4096, Scheme.NONE)
    assert lost == pytest.approx(50 / 4228)
