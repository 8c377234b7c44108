"""Hosts that are killed, stopped or cut off: the run goes on, with the losses of one to which nothing happened."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broken_sockets import shut_between
from host_helpers import Hosts, free_port
from run_helpers import small_plan
from workers_as_threads import train

from dtfm_lab.extensions.hosts.export import export, spec_for
from dtfm_lab.extensions.hosts.hosts import RunHost
from dtfm_lab.files import load_trace


def test_killed_hosts_come_back_a_stopped_one_goes_on_and_so_does_a_coordinator_that_was_killed(tmp_path):
    """At last all hosts are killed: the run goes on from the newest checkpoint."""
    plan, n_iterations = small_plan(2, 2), 100
    # of each stage one worker a host, so that activations and gradients cross
    hosts = [RunHost(name=n, address="127.0.0.1", workers=w) for n, w in (("a", (0, 3)), ("b", (1, 2)))]
    options = {"iterations": n_iterations, "checkpoint_folder": tmp_path / "checkpoints", "checkpoint_every": 2}
    spec = spec_for(plan, "1f1b", **options)
    run = Hosts(export(spec, tmp_path / "run", hosts, port=free_port()), tmp_path / "logs")
    try:
        run.start()
        run.until_iteration(1)
        run["b"].kill()
        assert run["b"].left_behind() == []
        run.until(lambda events: any(event["event"] == "awaiting" for event in events))
        run["b"].start()
        run.until(lambda events: any(event["event"] == "recovered" for event in events))
        run["b"].stop()
        time.sleep(1)
        run["b"].go_on()
        run.until_iteration(run.last_iteration() + 3)
        run.first.coordinator.kill()  # its host's agent starts it again
        run.until(lambda events: sum(event["event"] == "starting" for event in events) == 2)
        begun_again = run.until_next_iteration()
        for host in run:
            host.kill()
        for host in run:
            host.start()
        assert run.wait() == [0, 0], run.said()
        assert [host.left_behind() for host in run] == [[], []]
        assert run.count("starting") == 3, "the coordinator began three times"
    finally:
        run.end()
    assert begun_again > 0, "from a checkpoint, not from the beginning"
    begun = [event["iteration"] for event in run.first.events() if event["event"] == "iteration"]
    assert begun.count(0) == 1, "nor did it when all hosts were killed"
    assert run.losses() == train(plan, "1f1b", n_iterations).losses


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@pytest.fixture
def two_networks() -> Iterator[tuple[str, str]]:
    """Two network namespaces with one link between them, 50 Mbit/s by tc."""
    names = [f"dtfm-{os.getpid()}-{side}" for side in "ab"]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
            for number, name in enumerate(names, start=1):
                ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", "eth0", "up")
                shape = ["tbf", "rate", "50mbit", "burst", "64kb", "latency", "200ms"]
                command = ["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *shape]
                subprocess.run(command, check=True, capture_output=True, timeout=30)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"needs root, ip and tc: {error}")
        yield names[0], names[1]
    finally:
        for name in names:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                ip("netns", "del", name)


def test_a_link_that_is_down_for_a_moment_costs_nothing_and_one_for_longer_an_iteration_again(tmp_path, two_networks):
    """One that is down for longer than connections may be silent costs the worker behind it, which comes back."""
    plan, n_iterations = small_plan(1, 2), 40
    hosts = [RunHost(name=n, address=f"10.77.0.{rank + 1}", workers=(rank,)) for rank, n in enumerate("ab")]
    spec = spec_for(plan, iterations=n_iterations)
    prefixes = {n: ("ip", "netns", "exec", where) for n, where in zip("ab", two_networks, strict=True)}
    run = Hosts(export(spec, tmp_path / "run", hosts, silent_s=4), tmp_path / "logs", prefixes)

    def down_for(seconds: float) -> None:
        ip("-n", two_networks[1], "link", "set", "eth0", "down")
        time.sleep(seconds)
        ip("-n", two_networks[1], "link", "set", "eth0", "up")

    try:
        run.start()
        run.until_iteration(1)
        down_for(1.0)
        run.until_iteration(run.last_iteration() + 2)
        assert run.count("lost") == 0
        down_for(7.0)
        assert run.wait() == [0, 0], run.said()
        assert run.count("recovered") == run.count("lost") > 0
    finally:
        run.end()
    assert run.losses() == train(plan, plan.job.schedule_name, n_iterations).losses


def test_on_hosts_the_trace_is_written_though_a_socket_was_shut(tmp_path: Path) -> None:
    plan, n_iterations = small_plan(2, 2), 100
    hosts = [RunHost(name=n, address="127.0.0.1", workers=w) for n, w in (("a", (0, 3)), ("b", (1, 2)))]
    spec = spec_for(plan, "1f1b", iterations=n_iterations)
    run = Hosts(export(spec, tmp_path / "run", hosts, port=free_port()), tmp_path / "logs")
    try:
        run.start()
        run.until_iteration(1)
        assert shut_between([worker for host in run for worker in host.workers()]) == 1
        run.until(lambda events: any(event["event"] == "reconnected" for event in events))
        assert run.wait() == [0, 0], run.said()
        assert run.count("lost") == 0
    finally:
        run.end()
    measured = load_trace(tmp_path / "run" / "measured.json")
    assert measured.n_iterations == n_iterations
    assert list(measured.context.losses) == train(plan, "1f1b", n_iterations).losses
