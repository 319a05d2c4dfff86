"""A controller in a process of its own that may open few files. Prints its port; ends when its standard input
does. Arguments: the folder of the authority, the number of files."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from control.allocator import make
from testbed.containers.remote import certificates
from testbed.containers.remote.controller import Controller
from tests.testbed.containers.remote.cluster import deployment


async def serve(pki: Path) -> None:
    controller = Controller(
        deployment(agents=1), make("escra", {}), lambda: certificates.controller_identity(pki)
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
    await controller.run("127.0.0.1:0", stop, lambda port: print(port, flush=True))


if __name__ == "__main__":
    files = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    asyncio.run(serve(Path(sys.argv[1])))
