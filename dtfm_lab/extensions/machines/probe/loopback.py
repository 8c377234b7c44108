"""Measure TCP over the loopback between two threads of this process, with one and with several streams."""

import contextlib
import socket
import threading

from dtfm_lab.extensions.machines.probe.messages import answer_requests, together_bytes_per_s


def loopback_bytes_per_s(n_streams: int, seconds: float) -> float:
    """Return the bytes per second that ``n_streams`` streams reach together. Times them for about ``seconds``. Raises
    OSError."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        connections = []
        for _ in range(n_streams):
            connections.append(stack.enter_context(socket.create_connection(listener.getsockname())))
            accepted, _address = listener.accept()
            for end in (connections[-1], accepted):
                # Small messages would otherwise wait for others to join them (Nagle).
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=answer_requests, args=(accepted,), daemon=True).start()
        return together_bytes_per_s(connections, seconds)
