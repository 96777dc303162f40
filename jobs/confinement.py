"""What a process that reads files of strangers takes away from itself at its start: `confine`.

Limits by `setrlimit` always hold.  On Linux it also gives up all capabilities; Landlock (5.13) keeps it from files that
it does not need and from other processes, and seccomp from every network, the sockets of the database and the broker
included.  Where a kernel has none of them the process runs under its limits alone.  Imports nothing but the standard
library: what a confined process loads counts against its limits.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
_CAPABILITY_VERSION_3 = 0x20080522
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
#: Programs, libraries and what the kernel says of the machine; none of them holds data of the application.
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/etc", "/proc", "/sys", "/dev", "/nix")


def confine(
    parent: int,
    *,
    folder: Path | None,
    reads: Iterable[Path] = (),
    memory_bytes: int | None,
    cpu_s: int,
    file_bytes: int,
    with_parent_thread: bool = True,
) -> None:
    """Limit this process, and end it with its parent.

    folder: the only one that it may write; None for code of the user who started it, which keeps files and network.
    reads: what it may read besides that folder, our code and the system's libraries.
    memory_bytes: of address space, None for no limit; cpu_s: seconds of processor time; file_bytes: of any file that
    it writes.  with_parent_thread: the kernel ends it with the thread that started it; one that outlives it watches a
    pipe.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with suppress(AttributeError):  # not Linux
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if with_parent_thread:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before we asked to be notified
    _limit(resource.RLIMIT_CORE, 0, 0)
    _limit(resource.RLIMIT_CPU, cpu_s, cpu_s + 5)
    _limit(resource.RLIMIT_FSIZE, file_bytes, file_bytes)
    if memory_bytes is not None:
        _limit(resource.RLIMIT_AS, memory_bytes, memory_bytes)
    if folder is not None and sys.platform == "linux":
        # Root could read the environment of every process in spite of Landlock (CAP_PERFMON).
        libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(24))
        _leave_files(libc, [folder], [*_code(), *reads])
        _leave_network(libc)


def _limit(kind: int, soft: int, hard: int) -> None:
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _code() -> list[Path]:
    """Return where Python and our packages lie: not the checkout, which may hold the data folder."""
    packages = [path.parent for path in PROJECT.glob("*/__init__.py")]
    return [*map(Path, (*_SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix)), *packages]


# Landlock: linux/landlock.h
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL


def _leave_files(libc: ctypes.CDLL, writes: Iterable[Path], reads: Iterable[Path]) -> None:
    """Give up every file but those below `writes` and, to read and execute, `reads`; devices stay usable."""
    version = libc.syscall(_CREATE, None, 0, 1)
    if version < 1:
        return
    handled = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    of_network, of_others = (0b11, 0b11) if version >= 6 else (0b11 if version >= 4 else 0, 0)
    attributes = struct.pack("=QQQ", handled, of_network, of_others)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = libc.syscall(_CREATE, attributes, len(attributes), 0)
    if rules < 0:
        return
    devices = [Path("/dev")]
    for paths, access in ((reads, _READ), (devices, _READ | _WRITE_FILE | _IOCTL), (writes, handled)):
        for path in paths:
            with suppress(OSError):  # not every machine has all of them
                _allow(libc, rules, path, access & handled)
    libc.syscall(_RESTRICT, rules, 0)
    os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: Path, access: int) -> None:
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        possible = access if path.is_dir() else access & _OF_FILES
        libc.syscall(_ADD, rules, 1, struct.pack("=Qi", possible, opened), 0)
    finally:
        os.close(opened)


# seccomp: linux/seccomp.h, linux/filter.h
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
#: By machine: how the kernel calls it, and its numbers of `socket` and `connect`.
_CALLS = {"x86_64": (0xC000003E, 41, 42), "aarch64": (0xC00000B7, 198, 203)}
_IO_URING_SETUP, _OTHER_ABI = 425, 0x40000000


def _leave_network(libc: ctypes.CDLL) -> None:
    """Give up connections of every kind, and sockets but Unix ones, on which the viewer of XProf listens."""
    if platform.machine() not in _CALLS:
        return
    machine, socket_call, connect = _CALLS[platform.machine()]
    program = [  # code, jump if true, jump if false, operand
        (_LOAD, 0, 0, 4), (_EQUAL, 0, 7, machine),
        (_LOAD, 0, 0, 0), (_AT_LEAST, 5, 0, _OTHER_ABI), (_EQUAL, 4, 0, connect), (_EQUAL, 3, 0, _IO_URING_SETUP),
        (_EQUAL, 0, 3, socket_call), (_LOAD, 0, 0, 16), (_EQUAL, 1, 0, socket.AF_UNIX),
        (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW),
    ]  # fmt: skip
    words = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    libc.prctl(_PR_SET_SECCOMP, 2, struct.pack("@HP", len(program), ctypes.addressof(words)), 0, 0)
