"""The user of a recorded job, and the part of its caller's environment that it sees.

For: jobs of users, which need none of the rights with which their recorder runs. Not for: cgroups and
networks (container.py). A job of any user has no capability, and can gain none: the bounding set is empty,
and no program with set-user-ID or file capabilities adds any. Source: capabilities(7), credentials(7),
prctl(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from twinbed import ScenarioError

KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ"),
    *("LANG", "LANGUAGE", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
)
"""Variables that a job inherits: variables that every program reads, and the paths of its libraries and its
Python."""

KEPT_BEGINNINGS = (
    *("LC_", "PYTHON", "TORCH", "PYTORCH_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_"),
    *("OMP_", "KMP_", "MKL_", "OPENBLAS_"),
)
"""Beginnings of further such variables: settings of Python, PyTorch, GPUs, collectives and threads. Families
that hold passwords and tokens too, such as those of clouds and model hubs, are not among them."""

_SECRET = re.compile("_(KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
"""End of the name of a secret, which no job inherits: NVIDIA_API_KEY begins as settings do."""

WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--")
"""Runs the command line behind it as `Identity.become` would for this process's own user. Source:
setpriv(1)."""

_SET_NO_NEW_PRIVS, _CAPBSET_DROP, _CAP_AMBIENT, _CLEAR_ALL = 38, 24, 47, 4
"""linux/prctl.h."""
_MOST_CAPABILITIES = 64
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_HEADER = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, and the environment of the user's jobs. uid, gid, groups: as in credentials(7)."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    environment: Mapping[str, str]

    def become(self) -> None:
        """Make the calling process this user's, without any capability. This cannot be undone.

        Call it between fork and exec: it only makes system calls. Raises OSError.
        """
        if os.geteuid() == 0:
            _empty_bounding_set()
            os.setgroups(self.groups)
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)
        _check(_libc.prctl(_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0))
        _check(_libc.capset(_HEADER, _NO_CAPABILITIES))
        _check(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))

    def make_folder(self, folder: Path) -> None:
        """Make a folder that only this user may enter. The folder above stays this process's, and may be
        passed through."""
        folder.mkdir(mode=0o700)
        os.chown(folder, self.uid, self.gid)
        folder.parent.chmod(0o711)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Reach files as this user until the block ends: new files are the user's, and no link leads to a
        file that the user may not open. All threads of this process do so."""
        if os.geteuid() == self.uid:
            yield
            return
        user, group, groups = os.geteuid(), os.getegid(), os.getgroups()
        try:
            os.setgroups(self.groups)
            os.setegid(self.gid)
            os.seteuid(self.uid)
            yield
        finally:
            os.seteuid(user)
            os.setegid(group)
            os.setgroups(groups)


def identity(user: str | None, variables: Sequence[str], inherited: Mapping[str, str]) -> Identity:
    """Return the identity of a user's jobs.

    user: None = the user who called sudo, or else this process's. variables: NAME of a further variable to
    inherit, or NAME=VALUE. inherited: this process's environment. Raises ScenarioError for a user that does
    not exist, one that this process may not become, and a variable that is not set.
    """
    entry = _entry(user or _caller(inherited))
    if os.geteuid() not in (0, entry.pw_uid):
        raise ScenarioError(f"user {entry.pw_name}: only root may run a job as another user; use sudo")
    environment = {
        name: value
        for name, value in inherited.items()
        if name in KEPT or (name.startswith(KEPT_BEGINNINGS) and not _SECRET.search(name))
    }
    if entry.pw_uid != os.geteuid():
        environment |= {
            "HOME": entry.pw_dir,
            "SHELL": entry.pw_shell,
            "USER": entry.pw_name,
            "LOGNAME": entry.pw_name,
        }
    environment |= dict(_asked(variable, inherited) for variable in variables)
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Identity(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, environment)


def own(inherited: Mapping[str, str]) -> Identity:
    """Return this process's own user, also under sudo, for twinbed's own programs, which only need to read
    its files. inherited: this process's environment."""
    return identity(_entry(None).pw_name, (), inherited)


def _caller(inherited: Mapping[str, str]) -> str | None:
    """Return the user who called sudo; None without sudo."""
    return (os.geteuid() == 0 and inherited.get("SUDO_USER")) or None


def _entry(user: str | None) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(os.geteuid()) if user is None else pwd.getpwnam(user)
    except KeyError:
        who = f"number {os.geteuid()}" if user is None else user
        raise ScenarioError(f"user {who}: there is no such user here; name another: --user NAME") from None


def _asked(variable: str, inherited: Mapping[str, str]) -> tuple[str, str]:
    name, equals, value = variable.partition("=")
    if not name or not (equals or name in inherited):
        raise ScenarioError(f"--env {variable}: expected NAME=VALUE, or the NAME of a variable that is set")
    return name, value if equals else inherited[name]


def _empty_bounding_set() -> None:
    for capability in range(_MOST_CAPABILITIES):
        if _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0):
            if ctypes.get_errno() == errno.EINVAL:
                # The kernel has no capability of this number, and therefore none of a higher number.
                return
            raise OSError(ctypes.get_errno(), "prctl")


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "a capability cannot be dropped")
