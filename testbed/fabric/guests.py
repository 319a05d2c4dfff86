"""Make a VM an endpoint for applications. Its device is a tap in a host's bridge.

For: applications that need a kernel of their own (soft_roce.py). Not for: the programs in the VM. Source:
tun(4). To the host the VM is one more representor: overlay, routing and failover are the host's, and the VM
does not know of them. The tap and QEMU carry the fabric's marks, so they are removed with it.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from testbed.fabric.devices import TABLE, admit
from testbed.fabric.links import environment_of, in_namespace, output_of, run_in
from testbed.fabric.model import Fabric, Host
from testbed.fabric.plan import OVERLAY_PREFIX_LENGTH
from testbed.fabric.rtnetlink import Rtnetlink
from testbed.vm import Machine, Nic, Vm
from twinbed import BackendError

MEMORY_MIB = 1024
DEVICE = "eth0"
"""Name of the device inside the guest."""

_NUMBER = 200
"""The VM's number among its host's endpoints, above those of any plan (model.MOST_ENDPOINTS)."""

_TAP = "vm0"
_MARK = f"add rule netdev {TABLE} {_TAP} meta mark set 1"
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_SET_UP_S = 120.0


@dataclass(frozen=True, slots=True)
class Guest:
    """A VM that is up. address: its IPv4 address in the overlay's subnet. mac: MAC address of its device."""

    vm: Vm
    host: Host
    address: str
    mac: str

    def do(self, script: str) -> str:
        """Run a shell script inside the VM and return its output. It ends with the first command that fails.

        Raises BackendError with the last line of its errors.
        """
        done = self.vm.run(["/bin/sh", "-ec", script], _SET_UP_S, env=_PATH)
        if done.rc:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise BackendError(
                f"VM of {self.host.namespace}: {lines[-1] if lines else f'exit code {done.rc}'}; "
                "make system-vm installs what it needs"
            )
        return done.stdout


@contextmanager
def guests(fabric: Fabric, hosts: Sequence[Host]) -> Iterator[tuple[Guest, ...]]:
    """Run a VM of one CPU at every one of these hosts while the block runs.

    Raises BackendError if there can be no VM, or with the message of a VM that does not come up.
    """
    with ExitStack() as undo:
        yield tuple([undo.enter_context(_guest(fabric, host)) for host in hosts])


@contextmanager
def silenced(guest: Guest) -> Iterator[None]:
    """Drop what the VM sends, at its host's end of the tap, while the block runs.

    Only the VM and its peer can notice. Raises BackendError if the machine refuses.
    """
    place = guest.host.namespace
    output_of(place, ("nft", f"insert rule netdev {TABLE} {_TAP} drop"))
    try:
        yield
    finally:
        output_of(place, ("nft", f"flush chain netdev {TABLE} {_TAP}; {_MARK}"))


_PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@contextmanager
def _guest(fabric: Fabric, host: Host) -> Iterator[Guest]:
    address = f"10.0.{host.index + 1}.{_NUMBER}"
    mac = f"02:00:00:00:{host.index:02x}:{_NUMBER:02x}"
    tap = _tap(host)
    try:
        _admit(fabric, host, address, mac)
        machine = Machine(cpus=1, memory_mib=MEMORY_MIB, nics=(Nic(tap, mac),))
        with Vm(machine, environment=environment_of(host.namespace)) as vm:
            guest = Guest(vm, host, address, mac)
            guest.do(
                f"modprobe virtio_net; ip link set {DEVICE} mtu {fabric.plan.mtu_bytes} up; "
                f"ip address add {address}/{OVERLAY_PREFIX_LENGTH} dev {DEVICE}"
            )
            yield guest
    finally:
        # The device goes with its last descriptor; the host's other entries do not.
        with suppress(BackendError):
            run_in(host.namespace, ("nft", "delete", "chain", "netdev", TABLE, _TAP))
            with Rtnetlink(host.namespace) as kernel:
                kernel("neigh", "del", host.segments[0].bridge, dst=address)
        os.close(tap)


def _tap(host: Host) -> int:
    """Make a tap device in the host's namespace and return its descriptor."""
    with in_namespace(host.namespace):
        try:
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise BackendError(f"/dev/net/tun: {error.strerror}; a VM's network needs it") from error
        try:
            flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
            fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", _TAP.encode(), flags))
        except OSError as error:
            os.close(tap)
            raise BackendError(
                f"{_TAP} in {host.namespace}: {error.strerror}; a host can have one VM at a time"
            ) from error
    return tap


def _admit(fabric: Fabric, host: Host, address: str, mac: str) -> None:
    """Make the tap a representor, as an endpoint's device is, and mark its packets."""
    with Rtnetlink(host.namespace) as kernel:
        admit(kernel, host.segments[0].bridge, _TAP, mac, address, fabric.plan.mtu_bytes, "replace")
    hook = f"{{ type filter hook ingress device {_TAP} priority 0; }}"
    output_of(host.namespace, ("nft", f"add chain netdev {TABLE} {_TAP} {hook}; {_MARK}"))
