"""What the coordinator counts, keeps and takes back, with workers that compute nothing and answer what a test wants."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_helpers import small_plan, spec_of

import dtfm_lab as lab
from dtfm_lab.runtime.client.record import RunRecord
from dtfm_lab.runtime.coordinator import coordinator as module
from dtfm_lab.runtime.coordinator import worker_pool
from dtfm_lab.runtime.coordinator.coordinator import Coordinator
from dtfm_lab.runtime.coordinator.recovery import CheckpointPolicy
from dtfm_lab.runtime.coordinator.worker_handle import WorkerHandle
from dtfm_lab.runtime.protocol import checkpoint_folders, processes
from dtfm_lab.runtime.protocol.orders import Slow
from dtfm_lab.runtime.protocol.processes import CommandReader
from dtfm_lab.runtime.protocol.run_options import RunSpec

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "runs"))
from stand_in_workers import Order, StandIn

LOST = "lost"
Script = Callable[[int, int, Order], Any]
"""Of a rank, the number of its worker, counted from 0, and an order: values to add to the answer, or LOST."""


class Scripted(StandIn):
    """Answers as the script says, or hangs up."""

    script: Script
    n_th = 0
    orders: list[Order]

    def carry_out(self, order: Order) -> None:
        self.orders.append(order)
        if order["do"] == "checkpoint":
            (Path(order["folder"]) / f"stage-{self.rank}.safetensors").write_bytes(b"tensors")
        if (said := self.script(self.rank, self.n_th, order)) == LOST:
            self.connection.close()
            raise EOFError
        self.send(order["do"], **{"epoch": order["epoch"]} | self.answer(order) | (said or {}))


class Handle(WorkerHandle):
    """Of a worker that is lost when it hangs up."""

    def why_gone(self) -> str | None:
        return None if self.is_open else "hung up"

    def is_stuck(self) -> bool:
        return False


class Led:
    """A run that has been led to its end."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, n_replicas: int, script: Script, *, first: int = 0, **options: Any
    ) -> None:
        plan = small_plan(2, n_replicas, global_batch=2 * n_replicas)
        fields: dict[str, Any] = {"iterations": 6, "clock": "paced", "time_scale": 1.0} | options
        self.spec = spec = replace(spec_of(plan, "gpipe", **fields), first_iteration=first)
        self.record, self.events = RunRecord(spec), []
        self.orders: dict[int, list[Order]] = {}
        """By rank, the orders of its last worker."""
        n_started: dict[int, int] = {}
        computations = [(int(key[0]), key[1], str(key[2])) for key in _computations(spec)]

        def emit(event: str, **values: Any) -> None:
            self.events.append({"event": event, **values})
            self.record.absorb(self.events[-1])

        monkeypatch.setattr(module, "emit", emit)
        monkeypatch.setattr(worker_pool, "emit", emit)
        monkeypatch.setattr(processes, "emit", emit)
        commands = CommandReader()
        reading, self._writing = Pipe(duplex=False)
        self._reading, commands.fd = reading, reading.fileno()

        def start(spec: RunSpec, rank: int) -> WorkerHandle:
            ours, theirs = Pipe()
            position, replica = spec.workers[rank]
            own = [(stage, kind) for stage, at, kind in computations if stage == position and at == replica]
            worker = Scripted(rank, theirs, holds_last=position == 1, computes=own)
            worker.script, worker.n_th, worker.orders = script, n_started.get(rank, 0), []
            n_started[rank] = worker.n_th + 1
            self.orders[rank] = worker.orders
            threading.Thread(target=worker.follow_orders, daemon=True).start()
            return Handle(rank, ours, None)

        coordinator = Coordinator(spec, commands, start)
        try:
            coordinator.run()
        finally:
            coordinator.end()

    def iterations(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "iteration"]


def _computations(spec: RunSpec) -> list[tuple[int, int, Any]]:
    from dtfm_lab.costs.seconds import analytic

    return [(row.stage, row.replica, row.kind.value) for row in analytic(spec.plan, spec.programs(synchronise=True))]


def test_late_messages_and_overruns_of_all_workers_and_iterations_are_counted(monkeypatch):
    def late(rank: int, n_th: int, order: Order) -> Any:
        return {"late_messages": rank + 1, "overruns": 10 * rank} if order["do"] == "iterate" else None

    led = Led(monkeypatch, 2, late)
    told = [(event["late_messages"], event["overruns"]) for event in led.iterations()]
    assert told == [(10 * (i + 1), 60 * (i + 1)) for i in range(6)]
    assert (led.record.late_messages, led.record.overruns) == (60, 360)


def test_checkpoints_are_counted_from_the_newest_where_their_interval_changes(tmp_path):
    spec = replace(spec_of(small_plan(2, 1), checkpoint_folder=str(tmp_path), checkpoint_every=4), first_iteration=6)
    checkpoints = CheckpointPolicy(spec)

    def written(iterations: range) -> list[int]:
        found = []
        for done in iterations:
            if checkpoints.is_due(done, last=100):
                with checkpoints.writing(done, []) as folder:
                    (folder / "stage-0.safetensors").write_bytes(b"tensors")
                found.append(done)
        return found

    try:
        assert written(range(7, 15)) == [8, 12], "where a run from the beginning has them"
        checkpoints.change_interval(5, False)
        assert written(range(15, 24)) == [17, 22]
        checkpoints.change_interval(3, True)
        assert written(range(24, 32)) == [24, 27, 30], "the next one, too"
        checkpoints.change_interval(2, False)
        assert written(range(28, 34)) == [32], "those that were undone and done again are counted once"
        checkpoints.change_interval(0, False)
        assert written(range(34, 60)) == []
        assert checkpoints.is_due(100, last=100)
    finally:
        checkpoints.close()


def test_a_plan_is_void_where_a_device_of_it_leaves_before_it_is_followed():
    killed: list[int] = []
    spec = spec_of(small_plan(2, 1))
    here, other = (spec.device_name(*worker) for worker in spec.workers)

    def start(spec: RunSpec, rank: int) -> Any:
        return SimpleNamespace(signal=lambda sent: killed.append(rank))

    pool = worker_pool.WorkerPool(spec, CommandReader(), start, CheckpointPolicy(spec), lambda ranks: True, print)
    follows = {"command": "follow", "devices": [here]}
    pool._carry_out([follows, {"command": "leave", "device": other}])
    assert (pool.new_plan, pool.gone, killed) == (follows, {1}, [1])
    pool._carry_out([{"command": "leave", "device": "of another plan"}])
    assert pool.new_plan == follows
    pool._carry_out([{"command": "leave", "device": here}])
    assert (pool.new_plan, pool.gone) == (None, {0, 1})


def test_a_slowed_device_stays_slow_in_its_place_of_a_new_plan(monkeypatch):
    told: list[tuple[int, Any]] = []

    class Told(Handle):
        def order(self, order: Any, epoch: int | None = None) -> None:
            told.append((self.rank, order))
            super().order(order, epoch)

    def start(spec: RunSpec, rank: int) -> WorkerHandle:
        ours, theirs = Pipe()
        worker = StandIn(rank, theirs, holds_last=False, computes=[])
        threading.Thread(target=worker.follow_orders, daemon=True).start()
        return Told(rank, ours, None)

    monkeypatch.setattr(worker_pool, "emit", lambda event, **values: None)
    plan, commands = small_plan(2, 1), CommandReader()
    reading, writing = Pipe(duplex=False)
    commands.fd = reading.fileno()
    pool = worker_pool.WorkerPool(
        spec_of(plan), commands, start, CheckpointPolicy(spec_of(plan)), lambda ranks: True, print
    )
    pool.slow(0, 4.0)
    told.clear()
    exchanged = lab.evaluate(plan.topology, plan.job, stages=plan.placement.devices[::-1].tolist())
    assert pool.regroup(spec_of(exchanged)) == (2, set())
    pool.end()
    writing.close()
    assert [(rank, order.factor) for rank, order in told if isinstance(order, Slow)] == [(1, 4.0)]


@pytest.mark.parametrize(("n_replicas", "first"), [(1, 0), (2, 0), (1, 10)])
def test_a_worker_lost_in_an_iteration_repeats_that_one_or_what_came_after_the_checkpoint(
    n_replicas, first, tmp_path, monkeypatch
):
    def loses_one(rank: int, n_th: int, order: Order) -> Any:
        return LOST if (rank, n_th, order["do"], order.get("iteration")) == (1, 0, "iterate", first + 3) else None

    led = Led(monkeypatch, n_replicas, loses_one, first=first, checkpoint_folder=str(tmp_path), checkpoint_every=2)
    again, last = first + (3 if n_replicas == 2 else 2), first + 6
    assert [event["iteration"] for event in led.iterations()] == [*range(first, first + 3), *range(again, last)]
    losses = [pytest.approx(5 - 0.01 * i) for i in range(first, last)]
    assert led.record.losses == losses
    for done in (first + 4, last):
        kept = json.loads((checkpoint_folders.folder_for(tmp_path, done) / checkpoint_folders.META).read_text())
        assert kept["iteration"] == done
        assert kept["losses"] == losses[: done - first], "each iteration once"
    left = checkpoint_folders.resumed(replace(led.spec, iterations=10))
    assert (left.first_iteration, left.iterations) == (last, 4)
    join = [order for order in led.orders[1] if order["do"] == "join"][-1]
    assert join["version"] == again
    donor = next((rank for rank in led.orders if led.spec.workers[rank] == (1, 1)), None)
    assert join["takes_state_from"] == donor
    assert (join["checkpoint"] is None) == (n_replicas == 2)
    gives = {
        rank: [o for o in orders if o["do"] == "join"][-1]["gives_state_to"] for rank, orders in led.orders.items()
    }
    assert gives == {rank: [1] if rank == donor else [] for rank in led.orders}


def test_every_worker_starts_an_iteration_with_the_same_order_and_its_own_profile(monkeypatch):
    led = Led(monkeypatch, 2, lambda rank, n_th, order: None, iterations=3)
    begun = [
        [(o["iteration"], o["began_monotonic_s"]) for o in led.orders[rank] if o["do"] == "iterate"]
        for rank in range(4)
    ]
    assert [iteration for iteration, _ in begun[0]] == [0, 1, 2]
    assert all(own == begun[0] for own in begun)
    for rank, (position, _) in enumerate(led.spec.workers):
        (train,) = (order for order in led.orders[rank] if order["do"] == "train")
        assert {row[0] for row in train["specified_s"]} == {position}


def test_the_same_iteration_is_not_repeated_for_ever(monkeypatch):
    begun: list[int] = []

    def always(rank: int, n_th: int, order: Order) -> Any:
        if (rank, order["do"]) == (1, "iterate"):
            begun.append(n_th)
            return LOST
        return None

    with pytest.raises(worker_pool.RunFailed, match=r"worker device-2 .* hung up in iteration 0, for the 4th time"):
        Led(monkeypatch, 2, always)
    assert begun == [0, 1, 2, 3]


def test_the_loss_is_the_mean_of_the_workers_that_hold_the_last_stage(monkeypatch):
    def of_its_own(rank: int, n_th: int, order: Order) -> Any:
        return {"loss": {1: 2.0, 3: 5.0}.get(rank)} if order["do"] == "iterate" else None

    led = Led(monkeypatch, 2, of_its_own)
    assert [led.spec.workers[rank][0] for rank in (1, 3)] == [1, 1]
    assert led.record.losses == [3.5] * 6


def test_what_was_said_before_a_loss_counts_for_nothing_after_it(monkeypatch):
    """Answers of an earlier epoch, of another loss, come long before those of this one."""

    class Stale(Scripted):
        def carry_out(self, order: Order) -> None:
            if order["do"] == "iterate" and order["iteration"] == 2:
                self.send("iterate", **self.answer(order) | {"epoch": order["epoch"] - 1, "loss": 99.0})
                time.sleep(0.5)
            super().carry_out(order)

    monkeypatch.setattr(sys.modules[__name__], "Scripted", Stale)
    led = Led(monkeypatch, 2, lambda rank, n_th, order: None)
    assert led.record.losses == [pytest.approx(5 - 0.01 * i) for i in range(6)]
