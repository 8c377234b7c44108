"""Linux namespaces around a student's code, as ``bwrap`` makes them.

Code inside has no network, sees no other process, and can write only to temporary file systems of limited size. Hidden
paths are empty. The kernel ends every process inside when the first of them ends. A user other than root needs a kernel
that lets users create user namespaces. ``hold`` tests whether this one does.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import dtfm_lab

_LIBC = ctypes.CDLL(None, use_errno=True)

# Options of prctl, from linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
# Flags of unshare, from linux/sched.h.
CLONE_NEWNS = 0x20000
CLONE_NEWIPC = 0x8000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
# Flags of mount, from linux/mount.h.
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
SYS_MOUNT_SETATTR = 442
"""Number of the system call ``mount_setattr``."""
# Its arguments, from linux/fcntl.h and linux/mount.h.
AT_FDCWD = -100
AT_RECURSIVE = 0x8000
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
SIOCSIFFLAGS = 0x8914
"""Request of ioctl that sets the flags of a network interface, from linux/sockios.h."""
IFF_UP_RUNNING = 0x41
"""The flags ``IFF_UP`` and ``IFF_RUNNING`` together, from linux/if.h."""
CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 63
"""Highest number of a capability that a kernel can have. Dropping one that the kernel lacks fails, which is ignored."""

WRITABLE_BYTES = 256 << 20
"""Size of each temporary file system behind the walls."""
MOST_FILE_BYTES = 256 << 20
MOST_THREADS = 4096
"""Maximum number of threads that this user may start for a notebook, in addition to those already running. Each worker
of a run has one thread per core."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def prctl(option: int, value: int) -> None:
    """Make a prctl call about this process on Linux. Does nothing on other systems."""
    if sys.platform == "linux":
        _LIBC.prctl(option, value, 0, 0, 0)


def keep_private(on: bool = True) -> None:
    """Forbid other processes of this user to read or trace this one, on Linux. Allow it again if not ``on``."""
    prctl(PR_SET_DUMPABLE, int(not on))


def adopt_orphans(on: bool = True) -> None:
    """Become the parent of descendants whose own parent ends, so that they can be found. Stop doing so if not
    ``on``."""
    prctl(PR_SET_CHILD_SUBREAPER, int(on))


def end_with_parent() -> None:
    """Let the kernel kill this process when the thread that forked it ends."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def limit(memory_bytes: int) -> None:
    """Limit the memory of this process and of each descendant, and the size of files that they write.

    The kernel's limit counts reserved memory, which is more than is used, so it is twice ``memory_bytes``. The keeper
    measures what is used.
    """
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, 2 * memory_bytes),
        (resource.RLIMIT_FSIZE, MOST_FILE_BYTES),
    ):
        _, hard = resource.getrlimit(what)
        # A limit may be lowered but not raised again.
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (least, least))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # the first to go where the machine has no memory left


def limit_threads(already: int) -> None:
    """Let this user start at most ``MOST_THREADS`` threads in addition to the ``already`` running ones. Linux exempts
    root."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (already + MOST_THREADS, already + MOST_THREADS))


def hold() -> bool:
    """Return True if this user can build the walls on this machine. It is tried in a child process."""
    # Only Linux has these namespaces.
    if sys.platform != "linux":
        return False
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                behind_walls(Path(folder), (), lambda: os._exit(0))
            os._exit(1)
        return os.waitpid(pid, 0)[1] == 0


def behind_walls(folder: Path, hidden: Iterable[str], work: Callable[[], object]) -> NoReturn:
    """Do the work in a separate process behind the walls, and exit with its status.

    This process must have only one thread. Inside, ``folder`` is writable and ``hidden`` paths are empty.
    """
    uid, gid = os.geteuid(), os.getegid()
    _call(_LIBC.unshare, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC)
    prctl(PR_SET_DUMPABLE, 1)  # else the next files are root's
    end_with_parent()  # forgotten by unshare
    # Linux lets an unprivileged user map groups only after this.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    # The first process in the new namespace: when it ends, all others in it do.
    first = os.fork()
    if first == 0:
        end_with_parent()
        status = 1
        try:
            status = _first_process(folder, hidden, work)
        finally:
            os._exit(status)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)


def _first_process(folder: Path, hidden: Iterable[str], work: Callable[[], object]) -> int:
    """Build the walls, run ``work`` in a child, and reap processes until the child ends. When this process ends, the
    kernel ends all others inside."""
    _mounts(folder, hidden)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        # A new network namespace has its loopback switched off, which runs need.
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP_RUNNING))
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            # Only the first process needs them, for the mounts.
            _drop_capabilities()
            work()
            status = 0
        finally:
            os._exit(status)
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status) & 0xFF


def _mounts(folder: Path, hidden: Iterable[str]) -> None:
    # Private, so that no mount reaches the rest of the machine.
    _mount("none", "/", flags=MS_REC | MS_PRIVATE)
    _read_only("/", AT_RECURSIVE)
    # Python and the lab must stay visible, wherever they are installed.
    needed = [Path(each) for each in (sys.prefix, sys.base_prefix, sys.executable, Path(dtfm_lab.__file__).parents[1])]
    needed += [Path(each) for each in sys.path if each]
    needed = [real for each in needed for real in (each.absolute(), each.resolve())]
    for path in hidden:
        _hide(Path(path).resolve(), needed)
    places = dict.fromkeys(Path(each).resolve() for each in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/run"))
    for place in places:
        if place.is_dir() and place not in needed:
            _temporary_but(place, needed)
    folder.mkdir(parents=True, exist_ok=True)
    _temporary(folder)
    _devices(folder / "dev")
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")  # no capabilities again in a namespace further inside
    _read_only("/proc", 0)


def _devices(stage: Path) -> None:
    """Make a /dev without storage devices. Root could write to disks, with or without capabilities."""
    stage.mkdir()
    for name in DEVICES:
        if Path("/dev", name).exists():
            (stage / name).touch()
            _mount(f"/dev/{name}", stage / name, flags=MS_BIND)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (stage / name).symlink_to(target)
    (stage / "shm").mkdir()
    _mount(stage, "/dev", flags=MS_BIND | MS_REC)
    _temporary(Path("/dev/shm"))


def _hide(path: Path, needed: list[Path]) -> None:
    """Cover a file or a folder. If Python or the lab lies in the folder, cover everything else in it."""
    if _holds(path, needed):
        if path.is_dir() and path not in needed:
            for entry in path.iterdir():
                if not entry.is_symlink():
                    _hide(entry, needed)
    elif path.is_dir():
        _mount("tmpfs", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=0")
    elif path.exists():
        _mount("/dev/null", path, flags=MS_BIND)


def _holds(place: Path, needed: list[Path]) -> bool:
    return any(each.is_relative_to(place) for each in needed)


def _read_only(place: str, recursive: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    where = (AT_FDCWD, place.encode(), recursive)
    _call(_LIBC.syscall, SYS_MOUNT_SETATTR, *where, ctypes.byref(attributes), ctypes.sizeof(attributes))


def _temporary(place: Path) -> None:
    _mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, f"size={WRITABLE_BYTES},nr_inodes=65536,mode=0700")


def _temporary_but(place: Path, needed: list[Path]) -> None:
    """Mount a temporary file system over a folder. Only the needed paths in it, such as the lab itself, stay
    visible."""
    inside = [each for each in dict.fromkeys(needed) if each.is_relative_to(place) and each.exists()]
    first = [each for each in inside if not any(other in each.parents for other in inside)]
    # Opened before they are covered; the numbers still lead to them.
    opened = [(each, os.open(each, os.O_PATH)) for each in first]
    _temporary(place)
    for path, number in opened:
        path.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISDIR(os.fstat(number).st_mode):
            path.mkdir()
        else:
            path.touch()
        _mount(f"/proc/self/fd/{number}", path, flags=MS_BIND | MS_REC)
        os.close(number)


def _mount(source: object, target: object, kind: str = "", flags: int = 0, data: str = "") -> None:
    parts = (os.fsencode(str(source)), os.fsencode(str(target)), kind.encode() or None)
    _call(_LIBC.mount, *parts, ctypes.c_ulong(flags), data.encode() or None)


def _drop_capabilities() -> None:
    """Permanently give up all capabilities, also the ones that a program owned by root would get."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    for capability in range(LAST_CAPABILITY + 1):
        prctl(PR_CAPBSET_DROP, capability)
    header, nothing = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _call(_LIBC.capset, ctypes.byref(header), ctypes.byref(nothing))


def _call(function: Callable[..., int], *arguments: object) -> None:
    """Call libc. Raises OSError if the call fails."""
    if function(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
