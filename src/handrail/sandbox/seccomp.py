"""The filter of system calls: no sockets of this machine's own services, no keys, no terminal.

Namespaces do not part a program from UNIX sockets with a name in the file system, from the kernel's
keyrings, or from the terminal that it is started on. So a classic BPF program of seccomp refuses
the calls that reach them.
"""

from __future__ import annotations

import platform
import struct

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST, _SECOND = 16, 24  # the low halves of the arguments: both machines are little-endian
_ALLOW = 0x7FFF0000
_ERROR = 0x00050000
_EPERM, _ENOSYS = 1, 38
_UNIX = 1
_INPUT = (0x5412, 0x541C)
"""``TIOCSTI`` and ``TIOCLINUX``: what puts typed characters into a terminal."""
_X32 = 0x40000000
_IO_URING_SETUP = 425

# Source: asm/unistd.h; the value of AUDIT_ARCH, then socket, ioctl, add_key, request_key, keyctl.
_MACHINES = {
    "x86_64": (0xC000003E, 41, 16, (248, 249, 250)),
    "aarch64": (0xC00000B7, 198, 29, (217, 218, 219)),
}


def knows(machine: str = "") -> bool:
    """True if there is a filter for this kind of processor."""
    return (machine or platform.machine()) in _MACHINES


def filter_for(machine: str = "") -> bytes:
    """The program, as ``bwrap --seccomp`` reads it.

    Calls of another architecture or of x32, and ``io_uring_setup``, by which calls go unseen, give
    ``ENOSYS``. ``socket(AF_UNIX)``, the kernel's keyrings, and input into a terminal give
    ``EPERM``.
    """
    architecture, socket, ioctl, keys = _MACHINES[machine or platform.machine()]
    refuse = [_instruction(_RETURN, _ERROR | _EPERM)]
    allow = [_instruction(_RETURN, _ALLOW)]
    unknown = [_instruction(_RETURN, _ERROR | _ENOSYS)]
    code = [_instruction(_LOAD, _ARCHITECTURE), _instruction(_EQUAL, architecture, yes=1), *unknown]
    code += [_instruction(_LOAD, _NUMBER), _instruction(_AT_LEAST, _X32, no=1), *unknown]
    code += [_instruction(_EQUAL, _IO_URING_SETUP, no=1), *unknown]
    for key in keys:
        code += [_instruction(_EQUAL, key, no=1), *refuse]
    code += [_instruction(_EQUAL, socket, no=4), _instruction(_LOAD, _FIRST)]
    code += [_instruction(_EQUAL, _UNIX, no=1), *refuse, *allow]
    code += [_instruction(_EQUAL, ioctl, no=5), _instruction(_LOAD, _SECOND)]
    code += [_instruction(_EQUAL, _INPUT[0], yes=1), _instruction(_EQUAL, _INPUT[1], no=1)]
    return b"".join([*code, *refuse, *allow, *allow])


def _instruction(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
