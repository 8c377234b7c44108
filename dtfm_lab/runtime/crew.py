"""The process between the kernel and the workers: starts them, keeps them in step, ends them.

``python -m dtfm_lab.runtime.crew`` reads a RunSpec as its first line of standard input, then commands;
it writes events as JSON lines. It loads torch once and forks the workers, which saves each the import.
End of input means that the kernel is gone: then every worker is killed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections import defaultdict
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist

from dtfm_lab.domain.schedule import PASSES, Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.runtime import worker
from dtfm_lab.runtime.profile import REHEARSALS, Measured
from dtfm_lab.runtime.spec import RunSpec
from dtfm_lab.simulation.durations import analytic

PADDING = 5.0
"""paced clock: the drawn device's time over the wall time that nine of ten computations took in rehearsals"""
SLOWEST = 40.0
"""paced clock: most wall seconds a second. Where the drawn devices are so much faster than this machine that
this does not do, their computations are stretched to what it can keep, and that is said."""
HEAD_START_S = 0.02
"""between the order to begin an iteration and its moment 0"""
BLAME_S = 0.3
"""a worker that was killed takes its neighbours' connections along: wait for the culprit before naming one"""
UNEQUAL = (Kind.PACK, Kind.REDUCE, Kind.STEP)
"""computations that replicas of one stage may do more or less of"""
PATIENCE_S = 120.0
"""without any event from any worker"""


class Failed(Exception):
    """The run cannot go on; the message is for the user."""


class KernelGone(Exception):
    """Standard input ended, or the kernel said stop."""


class Crew:
    def __init__(self, spec: RunSpec, orders: StandardInput) -> None:
        self._spec, self._orders = spec, orders
        start_method = "fork" if sys.platform == "linux" else "spawn"
        context = multiprocessing.get_context(start_method)
        self._connections: list[Connection] = []
        self._processes: list[Any] = []
        self._doing = "while starting"
        self._answers: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        for rank in range(len(spec.workers)):
            ours, theirs = context.Pipe()
            process = context.Process(target=worker.main, args=(spec, rank, theirs), daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def run(self) -> None:
        """From joining to the last iteration."""
        spec = self._spec
        # after the forks: the store's threads would not survive them
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        ready = self._all("ready", port=store.port)
        tell("ready", workers=len(ready), torch=ready[0]["torch"])
        self._doing = "in the rehearsals"
        for rehearsal in range(-REHEARSALS, 0):
            self._iterate("rehearsed", rehearsal)
        self._train([event["rows"] for event in self._gather("profiled")])
        for iteration in range(spec.iterations):
            self._doing = f"in iteration {iteration}"
            done = self._iterate("finished", iteration)
            losses = [event["loss"] for event in done if event["loss"] is not None]
            tell(
                "iteration",
                iteration=iteration,
                loss=sum(losses) / len(losses),
                late_messages=sum(event["late_messages"] for event in done),
                overruns=sum(event["overruns"] for event in done),
            )
        self._doing = "while leaving"
        self._gather("left")

    def _iterate(self, answer: str, iteration: int) -> list[dict[str, Any]]:
        return self._all(answer, iteration=iteration, began_monotonic_s=time.monotonic() + HEAD_START_S)

    def _train(self, rows: list[list[list[Any]]]) -> None:
        """Tell the workers what each computation is expected to take, and how slowly time passes."""
        spec = self._spec
        measured: dict[tuple[int, int, Kind], Measured] = {}
        for rank, own in enumerate(rows):
            _, replica = spec.workers[rank]
            for stage, kind, *figures in own:
                measured[stage, replica, Kind(kind)] = Measured(*figures)
        # replicas of a stage compute the same on the same machine: one figure from all of them is the steadier;
        # but they may have unequal parts in averaging
        alike: dict[tuple[int, int, Kind], list[float]] = defaultdict(list)
        group = {key: key if key[2] in UNEQUAL else (key[0], -1, key[2]) for key in measured}
        for key, figures in measured.items():
            alike[group[key]].append(figures.wall_s if spec.clock == "real" else figures.cpu_s)
        expected = {key: statistics.fmean(alike[group[key]]) for key in measured}
        scale, stretched = 1.0, 0
        if spec.clock == "paced":
            expected = _drawn(spec, expected)
            needed_s = {key: PADDING * figures.crowded_wall_s for key, figures in measured.items()}
            scale = spec.time_scale or min(SLOWEST, max(1.0, *(needed_s[key] / expected[key] for key in expected)))
            if spec.time_scale is None:
                stretched = sum(expected[key] * scale < needed_s[key] for key in expected)
                expected = {key: max(seconds, needed_s[key] / scale) for key, seconds in expected.items()}
        profile = [ComputeTime(*key, seconds) for key, seconds in sorted(expected.items())]
        tell("profile", rows=profile, time_scale=scale, stretched=stretched)
        for rank, (position, replica) in enumerate(spec.workers):
            held = spec.built.stages_of(position)
            own_s = [(s, k, seconds) for (s, r, k), seconds in expected.items() if r == replica and s in held]
            self._send(rank, drawn_s=own_s, time_scale=scale)
        self._gather("built")

    def _all(self, event: str, **order: Any) -> list[dict[str, Any]]:
        """Give every worker the order, return their answers by rank."""
        for rank in range(len(self._connections)):
            self._send(rank, **order)
        return self._gather(event)

    def _send(self, rank: int, **order: Any) -> None:
        try:
            self._connections[rank].send(order)
        except OSError:
            raise Failed(self._blame() or f"worker {rank} does not listen") from None

    def _gather(self, event: str) -> list[dict[str, Any]]:
        """Pass events on until every worker has sent this one."""
        self._obey(self._orders.complete())  # may have come in one piece with the line before
        while len(self._answers[event]) < len(self._connections):
            answered = self._answers[event]
            sentinels = [p.sentinel for rank, p in enumerate(self._processes) if rank not in answered]
            heard = wait([*self._connections, *sentinels, self._orders.fd], timeout=PATIENCE_S)
            if not heard:
                silent = next(rank for rank in range(len(self._connections)) if rank not in answered)
                raise Failed(f"{self._name(silent)} was silent for {PATIENCE_S:.0f} s {self._doing}")
            for thing in heard:
                if thing == self._orders.fd:
                    self._obey(self._orders.read())
                elif isinstance(thing, Connection):
                    self._listen(thing)
            if any(p.exitcode not in (None, 0) for p in self._processes):
                raise Failed(self._blame() or "a worker ended without a word")
        answers = self._answers.pop(event)
        return [answers[rank] for rank in range(len(answers))]

    def _listen(self, connection: Connection) -> None:
        try:
            message = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            time.sleep(0.01)  # closed by a death whose sentinel is about to fire
            return
        rank = message["rank"]
        match message["event"]:
            case "error":
                deadline_s = time.monotonic() + BLAME_S
                while time.monotonic() < deadline_s and not self._blame():
                    time.sleep(0.02)
                raise Failed(self._blame() or f"{self._name(rank)} failed {self._doing}: {message['message']}")
            case "spans":
                tell("spans", rows=message["rows"])
            case "parameters":
                stage, replica = self._spec.workers[rank]
                tell("parameters", stage=stage, replica=replica, sha256=message["sha256"])
            case event:  # kept, for a fast worker may be an answer ahead of a slow one
                self._answers[event][rank] = message

    def _obey(self, commands: list[dict[str, Any]]) -> None:
        for command in commands:
            match command:
                case {"command": "kill", "rank": int(rank)}:
                    os.kill(self._processes[rank].pid, signal.SIGKILL)
                case _:
                    raise KernelGone

    def _blame(self) -> str | None:
        """Who was killed from outside, if anyone was."""
        for rank, process in enumerate(self._processes):
            if (code := process.exitcode) is not None and code < 0:
                return f"{self._name(rank)} was killed by {signal.Signals(-code).name} {self._doing}"
        return None

    def _name(self, rank: int) -> str:
        position, replica = self._spec.workers[rank]
        held = self._spec.built.stages_of(position)
        which = f"stage{'s' if len(held) > 1 else ''} {', '.join(map(str, held))}"
        return f"worker {self._spec.device_name(position, replica)} ({which}, replica {replica})"

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()


class StandardInput:
    """Lines as they come, without a thread: ``fd`` can be waited for."""

    fd = 0

    def __init__(self) -> None:
        self._text = b""

    def first_line(self) -> str:
        while b"\n" not in self._text:
            self._more()
        line, self._text = self._text.split(b"\n", 1)
        return line.decode()

    def read(self) -> list[dict[str, Any]]:
        """Wait for input, then as ``complete``; raises KernelGone at the end of input."""
        self._more()
        return self.complete()

    def complete(self) -> list[dict[str, Any]]:
        """The whole commands among what was read so far."""
        *lines, self._text = self._text.split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def _more(self) -> None:
        if not (chunk := os.read(self.fd, 1 << 16)):
            raise KernelGone
        self._text += chunk


def tell(event: str, **values: Any) -> None:
    """One event to the kernel."""
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def _drawn(spec: RunSpec, cpu_s: dict[tuple[int, int, Kind], float]) -> dict[tuple[int, int, Kind], float]:
    """The drawn devices' times: FLOP over peak where FLOP count, and coding; averaging and stepping, which FLOP do
    not describe, as many times slower than here as the forward is."""
    known = analytic(spec.plan, spec.programs(synchronise=True))
    drawn = {(row.stage, row.replica, row.kind): row.seconds for row in known}

    def seconds(stage: int, replica: int, kind: Kind) -> float:
        if kind in PASSES:
            return drawn[stage, replica, kind]
        slower = drawn[stage, replica, Kind.FORWARD] / cpu_s[stage, replica, Kind.FORWARD]
        return cpu_s[stage, replica, kind] * slower

    return {key: seconds(*key) for key in cpu_s}


def _load_optimiser() -> None:
    """Torch imports half of itself at the first optimiser: once here, not in every worker."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    torch.optim.AdamW([parameter])


def main() -> None:
    torch.set_num_threads(1)
    _load_optimiser()
    gc.freeze()  # what was imported stays: workers, which are forks, need not look through it
    orders = StandardInput()
    crew = None
    try:
        spec = RunSpec.from_line(orders.first_line())
        tell("starting", workers=len(spec.workers))
        crew = Crew(spec, orders)
        crew.run()
        tell("done")
    except KernelGone:
        with contextlib.suppress(OSError):  # nobody may be there to read it
            tell("stopped")
    except Failed as error:
        tell("failed", message=str(error))
    finally:
        if crew is not None:
            crew.kill()
    os._exit(0)  # torch takes its time to unload


if __name__ == "__main__":
    main()
