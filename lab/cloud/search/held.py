"""The promise of a search: when it ends, for whatever reason, none of its instances is billable.

For: every use of a provisioner. Not for: provisioners. This code runs after an error, Ctrl-C and SIGTERM. If
the process is killed outright, the lease of each instance ends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from control.provisioner import Provisioner
from testbed.containers.interrupts import Interrupts
from twinbed import BackendError

TRIES = 4
"""Number of tries to remove an instance before the removal is given up."""


@contextmanager
def nothing_left(provisioner: Provisioner, owner: str) -> Iterator[None]:
    """Stop the owner's instances when the block ends. Raises BackendError that names those still held."""
    with Interrupts() as interrupts:
        try:
            yield
        finally:
            # A second Ctrl-C must not interrupt the removal.
            interrupts.shield()
            release(provisioner, owner)


def release(provisioner: Provisioner, owner: str) -> None:
    """Stop every order of an owner until none is held. A call that fails stops no other."""
    problem: Exception | None = None
    for _ in range(TRIES):
        try:
            tokens = sorted({instance.token for instance in provisioner.held(owner)})
            if not tokens:
                return
        except Exception as error:
            problem = error
            continue
        for token in tokens:
            try:
                provisioner.stop(owner, token)
            except Exception as error:
                problem = error
    try:
        names = [instance.name for instance in provisioner.held(owner)]
    except Exception:
        names = [f"instances of owner {owner}"]
    if names:
        reason = f" ({problem})" if problem else ""
        raise BackendError(f"{', '.join(names)}: still held{reason}; delete them, or wait for their lease")
