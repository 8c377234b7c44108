"""Shuts connections between workers from outside, as a router that has forgotten them would."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Collection

import psutil
import pytest

GETFD = 438
"""Number of the system call pidfd_getfd (Linux 5.6), which copies another process's file descriptor."""


def shut_between(workers: Collection[psutil.Process], n: int = 1) -> int:
    """Shut up to ``n`` of the sockets that connect these processes with each other; return how many were."""
    open_to = {worker: worker.net_connections("tcp") for worker in workers}
    listening = {c.laddr.port for own in open_to.values() for c in own if c.status == psutil.CONN_LISTEN}
    shut = 0
    for worker, connections in open_to.items():
        for found in connections:
            ports = {found.laddr.port, *([found.raddr.port] if found.raddr else [])}
            if shut < n and found.status == psutil.CONN_ESTABLISHED and ports & listening:
                with _copied(worker.pid, found.fd) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
                shut += 1
    return shut


def _copied(pid: int, descriptor: int) -> socket.socket:
    try:
        process = os.pidfd_open(pid)
    except (AttributeError, OSError) as error:
        pytest.skip(f"needs pidfd_open: {error}")
    copied = ctypes.CDLL(None, use_errno=True).syscall(GETFD, process, descriptor, 0)
    os.close(process)
    if copied < 0:
        pytest.skip(f"needs pidfd_getfd: {os.strerror(ctypes.get_errno())} ({errno.errorcode[ctypes.get_errno()]})")
    return socket.socket(fileno=copied)
