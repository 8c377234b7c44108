"""A rank is one worker's: nobody else comes in under it while that worker is there."""

from __future__ import annotations

import json
import secrets
import socket
import threading

import pytest

from dtfm_lab.runtime.multihost.rendezvous import Rendezvous, join_run

SECRET = secrets.token_hex(32)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("wrong", [0, 2, -1])
def test_a_second_worker_of_a_rank_and_one_of_no_rank_are_turned_away(wrong):
    """Both ranks are there, so the run begins; orders go to the first worker that came with rank 0."""
    rendezvous = Rendezvous("127.0.0.1", port := free_port(), SECRET, 2)
    told: dict[str, str] = {}
    first_is_in, second_was_answered = threading.Event(), threading.Event()

    def join(name: str, rank: int, answered: threading.Event | None = None) -> None:
        try:
            connection = join_run("127.0.0.1", port, SECRET, rank, wait_s=60)[0]
            told[name] = json.loads(connection.recv_bytes())["to"]
        except (EOFError, OSError):
            told[name] = "turned away"
        if answered is not None:
            answered.set()

    def start(*arguments: object) -> threading.Thread:
        thread = threading.Thread(target=join, args=arguments, daemon=True)
        thread.start()
        return thread

    def look() -> None:
        """Called while the run waits; rank 1 comes when the other question is settled."""
        if len(rendezvous._joined) == 1 and not first_is_in.is_set():
            first_is_in.set()
            start("second", wrong, second_was_answered)
        if second_was_answered.is_set() and len(threads) == 1:
            threads.append(start("other", 1))

    threads = [start("first", 0)]
    connections = rendezvous.all_workers(look, wait_s=120)
    assert sorted(connections) == [0, 1]
    for rank, connection in connections.items():
        connection.send_bytes(json.dumps({"to": f"rank {rank}"}).encode())
    for thread in threads:
        thread.join(60)
    assert told == {"second": "turned away", "first": "rank 0", "other": "rank 1"}
    rendezvous.close()
