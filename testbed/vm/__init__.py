"""A VM with Debian's stock kernel, for features that this machine's own kernel lacks."""

from testbed.vm.boot import Machine, Nic, available
from testbed.vm.guest import NOT_STARTED, TIMED_OUT
from testbed.vm.host import Completed, StoppedError, Vm

__all__ = ["NOT_STARTED", "TIMED_OUT", "Completed", "Machine", "Nic", "StoppedError", "Vm", "available"]
