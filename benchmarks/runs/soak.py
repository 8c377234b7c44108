"""Workers killed and stopped at random moments: every run must end as if nothing had been.

Each case is a whole run in which one worker gets a signal at a moment drawn evenly from the time that the undisturbed
run took, starting and calibration included: ``kill`` SIGKILL, ``stop`` SIGSTOP, ``stop, go on`` SIGSTOP and some time
later SIGCONT. Moments and victims come from the seed; where a moment falls in the run depends on the machine. A signal
goes to the process itself, past the coordinator. A line says what the run was doing, and how the coordinator reacted:
not at all where the worker had ended, or went on in time. After each case losses and the digests of all parameters must
be those of the undisturbed run to the bit, and nothing may be left: no process of its group, no port where it listened
on, no file in the folder for temporary ones, which is a fresh one of its own. Exits with 1 where any case failed.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
import psutil
from machine import machine_line

from dtfm_lab.domain.errors import RunError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.runtime.client import launch, preload
from dtfm_lab.runtime.client.run import Run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "runtime"))
from run_helpers import left_behind, small_plan

SHAPES = ((2, 2), (4, 2))
KINDS = ("kill", "stop", "stop, go on")
LONGEST_PAUSE_S = 3.0
"""Longest time between SIGSTOP and SIGCONT."""
PATIENCE_S = 120.0
"""Longest time that one run may take."""
OF_TORCH = {f"torchinductor_{getpass.getuser()}"}
"""The cache folder that torch makes when imported, once for each user, and keeps."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    losses: list[float]
    digests: dict[tuple[int, int], str]
    seconds: float
    said: str
    """What happened, in a few words."""
    wrong: tuple[str, ...] = ()
    """What should not have happened."""


@click.command(help=__doc__)
@click.option("--each", default=20, show_default=True, help="Cases of each kind.")
@click.option("--kind", "kinds", default=KINDS, show_default=True, multiple=True, type=click.Choice(KINDS))
@click.option("--iterations", default=40, show_default=True)
@click.option("--schedule", default="1f1b", show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(each: int, kinds: tuple[str, ...], iterations: int, schedule: str, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        print(machine_line())
        plans = {shape: small_plan(*shape, schedule=schedule, dtype="fp32") for shape in SHAPES}
        wanted = {shape: undisturbed(plan, iterations) for shape, plan in plans.items()}
        for (n_stages, n_replicas), found in wanted.items():
            print(
                f"undisturbed {n_stages} x {n_replicas}: {iterations} iterations, {found.seconds:.1f} s, {found.said}"
            )
        rng = np.random.default_rng(seed)
        n_failed = 0
        for kind in kinds:
            for number in range(each):
                shape = SHAPES[number % len(SHAPES)]
                moment_s, pause_s = rng.random() * wanted[shape].seconds, rng.random() * LONGEST_PAUSE_S
                victim = int(rng.integers(shape[0] * shape[1]))
                found = disturbed(plans[shape], iterations, kind, moment_s, pause_s, victim)
                wrong = [*found.wrong, *differences(found, wanted[shape])]
                n_failed += bool(wrong)
                case = f"{kind:12} {shape[0]} x {shape[1]}  worker {victim} at {moment_s:4.1f} s"
                said = f"{found.seconds:5.1f} s  {found.said}"
                print(f"{case}  {said}  {'as undisturbed' if not wrong else 'WRONG: ' + '; '.join(wrong)}", flush=True)
        print(f"{len(kinds) * each - n_failed} of {len(kinds) * each} as undisturbed; {machine_line()}")
    if n_failed:
        raise SystemExit(1)


def undisturbed(plan: Plan, iterations: int) -> Outcome:
    """The second of two, so that torch is loaded."""
    preload.warm_up()
    outcomes = [watched(launch.start(plan, iterations=iterations), None) for _ in range(2)]
    if wrong := [*outcomes[1].wrong, *differences(*outcomes)]:
        raise SystemExit(f"undisturbed runs already differ: {'; '.join(wrong)}")
    return outcomes[1]


def disturbed(plan: Plan, iterations: int, kind: str, moment_s: float, pause_s: float, victim: int) -> Outcome:
    run = launch.start(plan, iterations=iterations)
    when: list[str] = []
    disturbing = threading.Thread(target=disturb, args=(run, kind, moment_s, pause_s, victim, when), daemon=True)
    disturbing.start()
    outcome = watched(run, disturbing)
    return replace(outcome, said=f"{when[0] if when else 'over':10} {outcome.said}")


def disturb(run: Run, kind: str, moment_s: float, pause_s: float, victim: int, when: list[str]) -> None:
    """Send the signal to one worker at the moment, or as soon as it exists; append the run's status to ``when``."""
    time.sleep(moment_s)
    worker = worker_of(run, victim)
    with contextlib.suppress(psutil.NoSuchProcess):
        if worker is None:
            return
        when.append(run.status)
        worker.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        if kind == "stop, go on":
            time.sleep(pause_s)
            worker.send_signal(signal.SIGCONT)


def worker_of(run: Run, number: int) -> psutil.Process | None:
    """Return the worker processes by rank, which is their order of starting; None where the run is over."""
    while run.running:
        with contextlib.suppress(psutil.NoSuchProcess, TypeError):
            workers = sorted(psutil.Process(run.pid).children(), key=lambda process: process.pid)
            if len(workers) > number:
                return workers[number]
        time.sleep(0.002)
    return None


def watched(run: Run, disturbing: threading.Thread | None) -> Outcome:
    """Wait for the end of the run; its outcome and what it left behind."""
    began_s = time.monotonic()
    ports: set[int] = set()
    seen, wrong = [], []
    guard = threading.Timer(PATIENCE_S, run.stop)
    guard.daemon = True
    guard.start()

    def note(event: dict[str, object]) -> None:
        if event["event"] in ("ready", "profile", "recovered"):
            ports.update(listening_ports(run.pid))
        if event["event"] == "lost":
            seen.append(f"{event['how']} in iteration {event['iteration']}")
        if event["event"] == "recovered":
            seen.append(f"from {event['state_from']} at {event['iteration']} after {event['lost_s']:.2f} s")

    try:
        run.wait(note)
    except RunError as error:
        wrong.append(str(error))
    seconds = time.monotonic() - began_s
    guard.cancel()
    if run.status != "done":
        wrong.append(f"the run {run.status} after {seconds:.0f} s")
    if disturbing is not None:
        disturbing.join()
    wrong += [f"process left: {line}" for line in left_behind(run.pid)]
    wrong += [f"port {port} is still open" for port in sorted(ports & listening_ports())]
    wrong += [f"file left: {path}" for path in sorted({*os.listdir(tempfile.gettempdir())} - OF_TORCH)]
    return Outcome(run.losses, run.parameter_digests, seconds, "; ".join(seen) or "nothing lost", tuple(wrong))


def listening_ports(group: int | None = None) -> set[int]:
    """Ports that processes of this group, or all, listen on."""
    ports = set()
    for each in psutil.net_connections("tcp"):
        with contextlib.suppress(ProcessLookupError):
            its_group = None if each.pid is None else os.getpgid(each.pid)
            if each.status == psutil.CONN_LISTEN and group in (None, its_group):
                ports.add(each.laddr.port)
    return ports


def differences(found: Outcome, wanted: Outcome) -> list[str]:
    wrong = []
    if found.losses != wanted.losses:
        unlike = [
            i for i, (ours, theirs) in enumerate(zip(found.losses, wanted.losses, strict=False)) if ours != theirs
        ]
        where = f"from iteration {unlike[0]} on" if unlike else f"{len(found.losses)} of {len(wanted.losses)}"
        wrong.append(f"losses differ, {where}")
    if found.digests != wanted.digests:
        unlike = [where for where, digest in wanted.digests.items() if found.digests.get(where) != digest]
        wrong.append(f"parameters differ at (stage, replica) {', '.join(map(str, unlike))}")
    return wrong


if __name__ == "__main__":
    main()
