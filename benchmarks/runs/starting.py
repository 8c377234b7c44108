"""How soon a real run is under way: eight CPU workers and a small model, first in a fresh kernel and then again.

Seconds since lab.start was called, as they reach the kernel: ``process`` the run's process has begun, ``starting`` its
first event, ``ready`` all workers listen and are connected, ``profile`` calibration is over, ``iteration`` the first is
trained. ``first`` is in a fresh Python that has imported dtfm_lab and made the plan, and loads torch in between;
``again`` are later runs of the same kernel; ``warmed`` is the first in a kernel that was told to warm up while its user
read, for as long as that took.

Then the way of an event: a process of its own writes lines with the time into the pipe of a run that is going on, as
its coordinator does; ``delay`` is until ``async for event in run.events()`` has it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
from machine import machine_line

import dtfm_lab as lab
from dtfm_lab.runtime.client import preload

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "runtime"))
from run_helpers import small_plan

SHAPE = 4, 2
PHASES = ("process", "starting", "ready", "profile", "iteration")
GOALS_S = {"first": 4.0, "again": 1.5}
DELAY_GOAL_MS = 50
KERNEL_PATIENCE_S = 120.0
READS_S = 8.0
"""Seconds that the user of ``warmed`` reads before the first run."""
STAMPS, STAMP_EVERY_S = 100, 0.02
WRITER = """
import json, os, sys, time
pipe = os.open(f"/proc/{sys.argv[1]}/fd/1", os.O_WRONLY)
for _ in range(int(sys.argv[2])):
    os.write(pipe, (json.dumps({"event": "stamp", "written_s": time.monotonic()}) + "\\n").encode())
    time.sleep(float(sys.argv[3]))
"""


@click.command(help=__doc__)
@click.option("--kernels", default=3, show_default=True, help="Fresh ones.")
@click.option("--runs", default=4, show_default=True, help="In each.")
@click.option("--kernel", hidden=True, is_flag=True, help="Be one of them.")
@click.option("--reads", default=0.0, hidden=True)
def main(kernels: int, runs: int, kernel: bool, reads: float) -> None:
    if kernel:
        print(json.dumps(in_this_kernel(runs, reads)))
        return
    print(machine_line())
    found = [fresh(runs) for _ in range(kernels)]
    rows = {
        "first": [each[0] for each in found],
        "again": [run for each in found for run in each[1:]],
        "warmed": [fresh(1, READS_S)[0]],
    }
    print(f"{'median s since the call':28}" + "".join(f"{phase:>12}" for phase in PHASES) + f"{'worst':>12}{'goal':>8}")
    for name, times in rows.items():
        if not times:
            continue
        shown = "".join(f"{np.median([each[phase] for each in times]):>12.2f}" for phase in PHASES)
        worst, goal = max(each["iteration"] for each in times), GOALS_S.get(name)
        print(
            f"{f'{name} ({len(times)})':28}{shown}{worst:>12.2f}" + (f"{f'< {goal:g}':>8}" if goal else ""), flush=True
        )
    middle_ms, most_ms, worst_ms = 1e3 * np.percentile(asyncio.run(delays()), [50, 95, 100])
    shown = f"median {middle_ms:.2f} ms, 95 % below {most_ms:.2f} ms, worst {worst_ms:.2f} ms"
    print(f"delay of {STAMPS} events: {shown}; goal < {DELAY_GOAL_MS:g} ms")
    print(machine_line())


def fresh(runs: int, reads_s: float = 0.0) -> list[dict[str, float]]:
    """A new Python: for each of its runs, seconds by phase."""
    command = [sys.executable, __file__, "--kernel", "--runs", str(runs), "--reads", str(reads_s)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=KERNEL_PATIENCE_S)
    if ended.returncode:
        raise SystemExit(f"a fresh kernel failed:\n{ended.stderr}")
    return json.loads(ended.stdout.splitlines()[-1])


def in_this_kernel(runs: int, reads_s: float) -> list[dict[str, float]]:
    plan = small_plan(*SHAPE, dtype="fp32")
    if reads_s:
        preload.warm_up()
        time.sleep(reads_s)
    found = []
    for _ in range(runs):
        came_s: dict[str, float] = {}
        began_s = time.monotonic()
        run = lab.start(plan, "1f1b", iterations=2)
        assert run.pid is not None
        came_s["process"] = time.monotonic() - began_s

        def note(event: dict[str, object], came_s: dict[str, float] = came_s, began_s: float = began_s) -> None:
            came_s.setdefault(str(event["event"]), time.monotonic() - began_s)

        run.wait(note)
        found.append({phase: came_s[phase] for phase in PHASES})
    return found


async def delays() -> list[float]:
    """Seconds from writing to arrival of the events of a run in progress."""
    run = lab.start(small_plan(*SHAPE, dtype="fp32"), "1f1b", iterations=10_000)
    delay_s: list[float] = []
    writer = None
    try:
        async for event in run.events():
            if event["event"] == "iteration" and writer is None:
                arguments = [str(run.pid), str(STAMPS), str(STAMP_EVERY_S)]
                writer = subprocess.Popen([sys.executable, "-c", WRITER, *arguments])
            elif event["event"] == "stamp":
                delay_s.append(time.monotonic() - event["written_s"])
                if len(delay_s) == STAMPS:
                    break
            elif event["event"] in ("failed", "stopped"):
                raise SystemExit(f"the run {event['event']}: {run.error}")
    finally:
        if writer is not None:
            writer.wait()
        run.stop()
    return delay_s


if __name__ == "__main__":
    main()
