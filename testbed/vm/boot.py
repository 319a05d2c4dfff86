"""Make the parts of a VM: Debian's stock kernel, an initramfs by virtme-ng, and QEMU's command line.

For: finding out whether a VM can be booted here, and starting QEMU. Not for: running commands in it
(host.py), nor the program that runs inside (guest.py). The guest's root is this machine's, over 9p.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from testbed.vm import guest
from twinbed import BackendError

CURE = "make system-vm"
"""The command that installs missing parts."""


@dataclass(frozen=True, slots=True)
class Nic:
    """A network device of the guest.

    tap: descriptor of the tap device (with IFF_VNET_HDR) at its other end. The caller closes it.
    mac: its MAC address
    """

    tap: int
    mac: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware of a guest. Without a NIC it has no network."""

    cpus: int = 2
    memory_mib: int = 2048
    nics: tuple[Nic, ...] = ()


BOOT = Path("/boot")
# Not the cloud kernel, which lacks rdma_rxe, nor the real-time one, which throttles in another way.
_STOCK = re.compile(r"vmlinuz-(?P<release>6\.1\.0-(?P<number>[0-9]+)-amd64)")
_MODULES = ("9p", "9pnet_virtio", "virtio_console", "virtio_pci")
_PROBE_S = 3.0
# The kernel does not trust an emulated CPU's TSC, although it is this machine's and equal on all CPUs. For
# any other clock QEMU emulates a device, under its one lock. A loop of real-time priority that asks for the
# time then takes a whole CPU ("sched: RT throttling activated"). On a busy machine the emulated timer may not
# tick while the kernel checks whether it works at all ("MP-BIOS bug: 8254 timer not connected"); without the
# check, the kernel trusts the timer.
_CLOCK = "tsc=reliable no_timer_check"
# The oldest CPU that NumPy runs on. The newest one that QEMU can emulate ("max") takes half as long again to
# boot and to run: 5-level page tables, and AVX instruction by instruction.
_EMULATED = ("-machine", "q35,accel=tcg", "-cpu", "Nehalem-v1")


def kernel_image() -> Path:
    """Return the newest stock Debian 6.1 kernel in /boot. Raises BackendError if there is none."""
    images = [
        (int(match["number"]), path)
        for path in BOOT.glob("vmlinuz-*")
        if (match := _STOCK.fullmatch(path.name))
    ]
    if not images:
        raise BackendError(f"{BOOT}: no stock Debian kernel 6.1 to boot a VM with; install it: {CURE}")
    return max(images)[1]


def release(image: Path) -> str:
    """Return the output of `uname -r`: `6.1.0-56-amd64` for `vmlinuz-6.1.0-56-amd64`."""
    return image.name.removeprefix("vmlinuz-")


def available() -> tuple[bool, str]:
    """Return whether a VM can be booted here, and a text: if not, the reason and the cure."""
    for program, package in (("qemu-system-x86_64", "qemu-system-x86"), ("modprobe", "kmod")):
        if find_program(program) is None:
            return False, f"{program} is not installed (Debian's {package}): {CURE}"
    if find_spec("virtme") is None:
        return False, "virtme-ng is not installed: pip install 'twinbed[testbed]'"
    if not any((Path(folder) / "busybox").exists() for folder in ("/bin", "/usr/bin")):
        return False, f"busybox is not installed (Debian's busybox-static): {CURE}"
    if os.geteuid() != 0:
        return False, "root is needed: the VM's file system is this machine's"
    try:
        image = kernel_image()
    except BackendError as error:
        return False, str(error)
    return True, f"kernel {release(image)}"


def initramfs(image: Path) -> bytes:
    """Return an initramfs that loads the modules of a 9p root and of the job port, then starts `init=`."""
    from virtme import mkinitramfs, modfinder

    config = mkinitramfs.Config()
    config.modfiles = modfinder.find_modules_from_install(_MODULES, kver=release(image))
    config.busybox = mkinitramfs.find_busybox("/", is_native=True)
    # Without a cache Python reads every module over 9p again: 3 times slower.
    config.access = "rw,cache=loose"
    if config.busybox is None or not config.modfiles:
        raise BackendError(f"{image}: no busybox, or no modules of this kernel; install them: {CURE}")
    archive = io.BytesIO()
    mkinitramfs.mkinitramfs(archive, config)
    return archive.getvalue()


def command(image: Path, initrd: int, console: int, monitor: int, machine: Machine) -> list[str]:
    """Return QEMU's command line. Jobs come on its standard input, answers leave on its standard output.

    initrd: inherited descriptor of the initramfs
    console: inherited descriptor of a file for the guest's kernel messages
    monitor: inherited descriptor of a socket on which QEMU's monitor answers
    """
    kernel = f"console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr {_CLOCK}"
    append = f"{kernel} init={sys.executable} -- -IS {Path(guest.__file__).resolve()}"
    return [
        *(str(find_program("qemu-system-x86_64")), "-nodefaults", "-no-reboot", "-display", "none"),
        *(*_acceleration(image), "-smp", str(machine.cpus), "-m", str(machine.memory_mib)),
        *("-fsdev", "local,id=root,path=/,security_model=none,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=root,mount_tag=/dev/root"),
        *("-chardev", "stdio,id=jobs,signal=off", "-device", "virtio-serial-pci"),
        *("-device", f"virtserialport,name={guest.PORT},chardev=jobs"),
        *("-chardev", f"file,id=console,path=/proc/self/fd/{console}", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=readline"),
        *(word for index, nic in enumerate(machine.nics) for word in _network(index, nic)),
        *("-kernel", str(image), "-initrd", f"/proc/self/fd/{initrd}", "-append", append),
    ]


def _network(index: int, nic: Nic) -> tuple[str, ...]:
    device = f"virtio-net-pci,netdev=nic{index},mac={nic.mac},romfile="
    return "-netdev", f"tap,id=nic{index},fd={nic.tap}", "-device", device


def _acceleration(image: Path) -> tuple[str, ...]:
    """Return KVM if a guest boots under it, else emulation: nested KVM may abort or hang."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return _EMULATED
    trial = [
        *(str(find_program("qemu-system-x86_64")), "-nodefaults", "-no-reboot", "-display", "none"),
        *("-machine", "q35,accel=kvm", "-cpu", "host", "-m", "512", "-serial", "stdio"),
        *("-kernel", str(image), "-append", "console=ttyS0 earlyprintk=serial,ttyS0,115200 panic=-1"),
    ]
    try:
        done = subprocess.run(
            trial, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False
        )
        printed = done.stdout
    except subprocess.TimeoutExpired as error:
        printed = error.stdout or b""
    return ("-machine", "q35,accel=kvm", "-cpu", "host") if b"Linux version" in printed else _EMULATED


def find_program(name: str) -> str | None:
    """Return the path of a program, also where only root's PATH has it; None if there is none."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
