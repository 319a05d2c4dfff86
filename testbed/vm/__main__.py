"""Run one command in a VM: `python -m testbed.vm -- COMMAND…`.

For: a developer. Not for: tests, which keep a VM up (host.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from testbed.vm import Vm
from twinbed import BackendError


def main(argv: Sequence[str]) -> int:
    """Boot a VM, run the command in it, and return its exit code. argv: `--` and the command."""
    command = list(argv[1:] if argv[:1] == ["--"] else argv)
    if not command:
        print("usage: python -m testbed.vm -- COMMAND…", file=sys.stderr)
        return 2
    try:
        with Vm() as vm:
            print(f"vm: kernel {vm.release}, up in {vm.boot_s:.0f} s", file=sys.stderr, flush=True)
            return vm.run(command, timeout_s=86_400, on_output=_pass_on).rc
    except BackendError as error:
        print(f"vm: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _pass_on(stream: str, data: bytes) -> None:
    out = sys.stdout if stream == "stdout" else sys.stderr
    out.buffer.write(data)
    out.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
