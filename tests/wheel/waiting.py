"""Carries out commands of `twinbed` in forks of one process, which has imported its packages already.

For: tests that run dozens of commands, each of which would import the same packages for more than a second.
Not for: how the program starts, which other tests of the wheel see. `python waiting.py SOCKET` serves;
CLIENT, as a program `twinbed`, hands over its words, folder, environment and files.
"""

import gc
import json
import os
import socket
import sys
from importlib import import_module

PACKAGES = (
    "lab.api", "lab.cloud.run.ladder", "lab.cloud.run.recommending", "lab.cloud.run.runner",
    "lab.cluster.run.runner",
    "lab.containers.advise.model", "lab.containers.run.runner", "lab.fabric.run.runner", "lab.runs.runner",
)  # fmt: skip
"""Packages that most commands use."""

CLIENT = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({path!r})
    asked = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [asked], [0, 1, 2])
    sys.exit(int(server.recv(9)))
"""


def carry_out(argv: list[str], folder: str, environment: dict[str, str], files: list[int]) -> None:
    """Become the command that another process was called as. It does not return."""
    from lab.cli.main import main

    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # On a machine with one CPU, runs are made in this process. Others would import the packages again.
    os.sched_getaffinity = lambda _: {0}
    sys.argv = argv
    try:
        main()
    except SystemExit as end:
        sys.stdout.flush()
        # The end of the interpreter would touch, and so copy, all that the packages hold.
        os._exit(end.code if isinstance(end.code, int) else 1)


def serve(path: str) -> None:
    """Carry out one command after the other."""
    for name in PACKAGES:
        import_module(name)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen()
        os.rename(f"{path}.new", path)  # noqa: PTH104 - ready
        while True:
            connection, _ = listener.accept()
            with connection:
                asked, files, _, _ = socket.recv_fds(connection, 1 << 17, 3)
                child = os.fork()
                if child == 0:
                    carry_out(*json.loads(asked), files)
                for file in files:
                    os.close(file)
                _, status = os.waitpid(child, 0)
                connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


if __name__ == "__main__":
    serve(sys.argv[1])
