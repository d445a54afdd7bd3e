"""Networks of their own for the shells of tests: what a page shows runs as it is pasted, with its fixed ports.

A process in a network namespace (network_namespaces(7)) has a loopback interface on which nobody else has a port.
Making one takes root, or the right to make user namespaces, which some systems and containers deny.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
import tempfile
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, run

ADDRESS = "192.0.2.1"
"""Of a machine that has a name; programs reach it from the same address."""
_NEW_MOUNTS, _NEW_USER, _NEW_NETWORK = 0x20000, 0x10000000, 0x40000000  # sched.h
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000  # sys/mount.h
_SET_ADDRESS, _GET_FLAGS, _SET_FLAGS, _UP = 0x8916, 0x8913, 0x8914, 0x1  # linux/sockios.h, linux/if.h
_HOSTS = "/etc/hosts"


def isolated(command: list[str], name: str = "") -> list[str]:
    """Return a command that runs in a network of its own; as it is where the system makes none.

    Args:
        command: a program and its arguments.
        name: by which programs in the network find this machine at ADDRESS, too; "" for none.
    """
    return [*_wrapper(name), *command] if may_isolate(name) else command


@cache
def may_isolate(name: str = "") -> bool:
    """Return whether this system makes such networks for this user."""
    return run([*_wrapper(name), "true"], stdout=DEVNULL, stderr=DEVNULL, check=False).returncode == 0


def _wrapper(name: str) -> list[str]:
    return [sys.executable, str(Path(__file__)), name]


def _enter(name: str) -> None:
    wanted = _NEW_NETWORK | (_NEW_MOUNTS if name else 0)
    user, group = os.geteuid(), os.getegid()
    if _LIBC.unshare(wanted) != 0:
        _check(_LIBC.unshare(_NEW_USER | wanted))
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(control, _GET_FLAGS, request))
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))
        if name:
            address = struct.pack("=hH4s8x", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
            fcntl.ioctl(control, _SET_ADDRESS, struct.pack("16s16s", b"lo:1", address))
    if name:
        with tempfile.NamedTemporaryFile() as file:
            file.write(f"127.0.0.1 localhost\n{ADDRESS} {name}\n".encode())
            file.flush()
            _check(_LIBC.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None))
            _check(_LIBC.mount(file.name.encode(), _HOSTS.encode(), None, _BIND, None))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    _LIBC = ctypes.CDLL(None, use_errno=True)
    _LIBC.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_void_p)
    _enter(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])
