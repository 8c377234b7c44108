"""What a process that forks others from itself, for each message of its client, needs: no more than one thread."""

import contextlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn


def send(client: socket.socket, **values: Any) -> None:
    """Send a message; a client that is gone is noticed at the next read of the socket."""
    with contextlib.suppress(OSError):
        client.send(json.dumps(values).encode())


def ended_children() -> list[tuple[int, int]]:
    """Return (process id, status) of the children that ended since the last call."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(one)
    return found


def exit_after(work: Callable[..., object], *arguments: Any) -> NoReturn:
    """Do the work of a forked process and exit with its status, without the exit handlers of its parent."""
    status = 1
    try:
        work(*arguments)
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
