"""How far a run scales: what a worker costs, joining at once, the coordinator's work, and a plan of 4,096 devices.

``python benchmarks scale [worker] [join] [lead] [plan]``; all four without arguments. Workers are stand-ins that
speak the coordinator's protocol without torch (stand_in_workers.py), many in a process; everything is on this machine.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import resource
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import psutil
from stand_in_workers import StandIn, keep_alive

import dtfm_lab as lab
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.runtime.coordinator import coordinator as coordinator_module
from dtfm_lab.runtime.coordinator import worker_pool
from dtfm_lab.runtime.coordinator.coordinator import Coordinator
from dtfm_lab.runtime.coordinator.worker_handle import WorkerHandle
from dtfm_lab.runtime.protocol.channels import Channel
from dtfm_lab.runtime.protocol.connections import Listener, authenticated
from dtfm_lab.runtime.protocol.processes import CommandReader
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.simulation import build

SIZES = tuple(int(n) for n in os.environ.get("SIZES", "64 256 512 1024 2048 4096").split())
PER_PROCESS = 256
"""Stand-ins in one process."""
N_STAGES = 8
ITERATIONS = 5
SPANS = 40
"""Spans that a stand-in reports of an iteration: a stage's passes and messages of four micro-batches, and averages."""
PATIENCE_S = 240.0


def plan_of(n: int, n_stages: int = N_STAGES, **fields: Any) -> Plan:
    """A plan on equal links, stages in device order."""
    latency_ms, bandwidth = np.full((n, n), 10.0), np.full((n, n), 1.0)
    topology = Topology.from_matrices(latency_ms, bandwidth, name="even", gpu="laptop", peak_flop_per_s=5e10)
    n_replicas = n // n_stages
    model = gpt(name="deep", n_layers=max(n_stages, 8), d_model=32, n_heads=2, seq_len=16, vocab_size=256)
    fields = {"global_batch": 4 * n_replicas, "microbatch": 1, "model": model} | fields
    job = lab.load_job("tiny", n_stages=n_stages, n_replicas=n_replicas, **fields)
    return lab.evaluate(topology, job, stages=np.arange(n).reshape(n_stages, n_replicas).tolist())


def spec_of(plan: Plan, iterations: int = ITERATIONS, schedule: str = "1f1b") -> RunSpec:
    built = build(plan, schedule)
    return RunSpec(
        plan=plan, schedule=built.name, orders=built.orders, iterations=iterations, clock="paced", time_scale=1.0
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def usage(process: psutil.Process | None = None) -> dict[str, float]:
    process = process or psutil.Process()
    times = process.cpu_times()
    return {
        "rss_mb": process.memory_info().rss / 1e6,
        "threads": process.num_threads(),
        "fds": process.num_fds(),
        "cpu_s": times.user + times.system,
    }


def stand_ins(port: int, secret: str, ranks: list[int], kinds: list[Any], n_stages: int, outcome: Any) -> None:
    """The body of a process of stand-ins: all join at once."""
    there: list[StandIn] = []
    refusals: list[str] = []
    clocks: list[Channel] = []
    began_s = time.monotonic()

    def be(rank: int) -> None:
        try:
            clock = authenticated("127.0.0.1", port, secret, retry_s=PATIENCE_S)
            clock.send(rank=-1)
            channel = authenticated("127.0.0.1", port, secret, retry_s=PATIENCE_S)
            channel.send(rank=rank)
            connection = Connection(channel.raw().detach())
            clocks.append(clock)
        except (OSError, EOFError) as error:
            refusals.append(f"{type(error).__name__}: {error}")
            return
        position = rank % n_stages
        own = [(stage, kind) for stage, kind in kinds if stage == position]
        there.append(one := StandIn(rank, connection, holds_last=position == n_stages - 1, computes=own, n_spans=SPANS))
        one.follow_orders()

    threading.stack_size(1 << 18)
    threads = [threading.Thread(target=be, args=(rank,), daemon=True) for rank in ranks]
    threading.Thread(target=keep_alive, args=(lambda: list(there),), daemon=True).start()
    for thread in threads:
        thread.start()
    while len(there) + len(refusals) < len(ranks) and time.monotonic() - began_s < PATIENCE_S:
        time.sleep(0.05)
    outcome.put({"joined": len(there), "refusals": refusals[:3], "n_refused": len(refusals), **usage()})
    for thread in threads:
        thread.join(PATIENCE_S)


def joined(n: int, lead: Any) -> dict[str, Any]:
    """Let n stand-ins join at once, and hand their connections to ``lead``; say how that went."""
    secret, port = secrets.token_hex(32), free_port()
    context = multiprocessing.get_context("fork")
    outcome = context.Queue()
    rejected: list[str] = []
    arrived: dict[int, Connection] = {}
    all_there = threading.Event()

    def admit(channel: Channel) -> None:
        """A connection for orders, or one for the time, which keeps its thread as a rendezvous does."""
        rank = channel.receive(PATIENCE_S)["rank"]
        if rank < 0:
            channel.raw().recv(1)
            return
        arrived[rank] = Connection(channel.raw().detach())
        if len(arrived) == n:
            all_there.set()

    kinds = [(stage, kind) for stage in range(N_STAGES) for kind in ("F", "B", "REDUCE", "STEP")]
    groups = [list(range(first, min(first + PER_PROCESS, n))) for first in range(0, n, PER_PROCESS)]
    began_s, before = time.monotonic(), usage()
    processes = [
        context.Process(target=stand_ins, args=(port, secret, ranks, kinds, N_STAGES, outcome), daemon=True)
        for ranks in groups
    ]
    row: dict[str, Any] = {"n": n}
    try:
        for process in processes:  # before the listener's thread, which no fork would have
            process.start()
        listener = Listener("127.0.0.1", port, secret, admit, lambda peer, why: rejected.append(why))
        if not all_there.wait(PATIENCE_S):
            row["missing"] = n - len(arrived)
        after = usage()
        row |= {"join_s": time.monotonic() - began_s, "join_cpu_s": after["cpu_s"] - before["cpu_s"]}
        row |= {key: after[key] for key in ("rss_mb", "threads", "fds")} | {"dropped": len(rejected)}
        row["why"] = sorted(set(rejected))[:2]
        with suppress(Exception):
            told = [outcome.get(timeout=30) for _ in processes]
            row |= {"refused": sum(one["n_refused"] for one in told), "stand_in_rss_mb": told[0]["rss_mb"]}
            row |= {"words": [words for one in told for words in one["refusals"]][:2]}
        if all_there.is_set():
            row |= lead(dict(arrived))
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
    listener.close()
    return row


class Handle(WorkerHandle):
    """Of a worker that is lost when it hangs up."""

    def why_gone(self) -> str | None:
        return None if self.is_open else "hung up"

    def is_stuck(self) -> bool:
        return False


def lead_iterations(spec: RunSpec) -> Any:
    """Return a function that leads a run of the workers behind these connections."""

    def lead(connections: dict[int, Any]) -> dict[str, Any]:
        sent: dict[str, int] = {}
        ends: list[tuple[float, float]] = []

        def emit(event: str, **values: Any) -> None:
            sent[event] = sent.get(event, 0) + len(json.dumps({"event": event, **values})) + 1
            if event == "iteration":
                ends.append((time.monotonic(), time.process_time()))

        coordinator_module.emit = worker_pool.emit = emit
        commands = CommandReader()
        reading, _writing = os.pipe()
        commands.fd = reading
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        coordinator = Coordinator(spec, commands, lambda _spec, rank: Handle(rank, connections[rank], None))
        try:
            coordinator.run()
        finally:
            coordinator.end()
        n = len(ends) - 1
        return {
            "start_s": ends[0][0] - began_s,
            "start_cpu_s": ends[0][1] - began_cpu_s,
            "iteration_s": (ends[-1][0] - ends[0][0]) / n,
            "iteration_cpu_s": (ends[-1][1] - ends[0][1]) / n,
            "messages_per_cpu_s": 2 * len(connections) * n / (ends[-1][1] - ends[0][1]),
            "spans_kb_per_iteration": sent["spans"] / (n + 1) / 1e3,
            "led_rss_mb": usage()["rss_mb"],
        }

    return lead


def measure_join() -> None:
    for n in SIZES:
        alone(lambda n=n: show("join", joined(n, lambda connections: {})))


def measure_lead() -> None:
    for n in SIZES:
        alone(lambda n=n: _measure_lead(n))


def _measure_lead(n: int) -> None:
    spec = spec_of(plan_of(n))
    began_s = time.monotonic()
    spec.programs(synchronise=True)
    show("lead", {"programs_s": time.monotonic() - began_s} | joined(n, lead_iterations(spec)))


def alone(work: Callable[[], None]) -> None:
    """Work in a process of its own, so that no thread or memory is left for the next."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    if process.exitcode:
        print("ended with", process.exitcode, flush=True)


def measure_plan() -> None:
    for n in (64, 256, 1024, 4096):
        alone(lambda n=n: _measure_plan(n))


def _measure_plan(n: int) -> None:
    row: dict[str, Any] = {"n": n}

    def timed(name: str, work: Any) -> Any:
        began_s = time.monotonic()
        result = work()
        row[name] = time.monotonic() - began_s
        return result

    plan = timed("evaluate_s", lambda: plan_of(n))
    timed("search_1_step_s", lambda: lab.plan(plan.topology, plan.job, steps=1))
    spec = spec_of(plan)
    timed("programs_s", lambda: spec.programs(synchronise=True))
    row["programs_rss_mb"] = usage()["rss_mb"]
    timed("simulate_s", lambda: lab.simulate(plan, "1f1b"))
    row["simulate_rss_mb"] = usage()["rss_mb"]
    line = timed("write_spec_s", spec.to_line)
    row["spec_mb"] = len(line) / 1e6
    timed("read_spec_s", lambda: RunSpec.from_line(line))
    row["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    show("plan", row)


def measure_worker() -> None:
    """Real workers of small runs: memory, threads and open files of the largest, in the middle of the run."""
    for n_stages, n_replicas in ((1, 1), (4, 1), (4, 2), (4, 4)):
        plan = plan_of(n_stages * n_replicas, n_stages)
        run = lab.start(plan, "1f1b", iterations=400, clock="virtual")
        run.wait_for(2)
        workers = psutil.Process(run.pid).children()
        rows = [usage(one) for one in workers]
        own = [one.memory_full_info().uss / 1e6 for one in workers]
        run.stop()
        most = {key: max(row[key] for row in rows) for key in ("rss_mb", "threads", "fds")}
        show("worker", {"n_stages": n_stages, "n_replicas": n_replicas, **most, "own_mb": max(own)})
        gc.collect()


def show(what: str, row: dict[str, Any]) -> None:
    words = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
    print(f"{what}:", ", ".join(words), flush=True)


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    print(f"limits: {soft} of {hard} open files, {resource.getrlimit(resource.RLIMIT_NPROC)[0]} threads", flush=True)
    asked = sys.argv[1:] or ["worker", "join", "lead", "plan"]
    for name, measure in (
        ("worker", measure_worker),
        ("join", measure_join),
        ("lead", measure_lead),
        ("plan", measure_plan),
    ):
        if name in asked:
            measure()


if __name__ == "__main__":
    main()
