"""Run nftables commands within this process, through its own library.

For: changing a set in a fraction of a millisecond, in the calling thread's namespace; starting the program
`nft` takes several milliseconds. Not for: loading rules when time does not matter (`nft -f`). Source:
libnftables(3).
"""

from __future__ import annotations

import ctypes
import functools

from twinbed import BackendError

_LIBRARY = "libnftables.so.1"


def run(commands: str) -> None:
    """Run commands as one transaction: all take effect at once, or none does.

    Raises BackendError with nftables' own message if it refuses.
    """
    library = _loaded()
    context = library.nft_ctx_new(0)
    if not context:
        raise BackendError("nftables: no context; run as root")
    try:
        library.nft_ctx_buffer_error(context)
        if library.nft_run_cmd_from_buffer(context, commands.encode()):
            message = library.nft_ctx_get_error_buffer(context).decode(errors="replace").strip()
            reason = message.splitlines()[0] if message else "no reason given"
            raise BackendError(f"nftables refuses {commands.splitlines()[0]!r}: {reason}; is the fabric up?")
    finally:
        library.nft_ctx_free(context)


@functools.cache
def _loaded() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise BackendError(f"{_LIBRARY}: not installed; sudo apt install nftables") from None
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_free.argtypes = [ctypes.c_void_p]
    library.nft_ctx_buffer_error.argtypes = [ctypes.c_void_p]
    library.nft_ctx_get_error_buffer.argtypes = [ctypes.c_void_p]
    library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return library
