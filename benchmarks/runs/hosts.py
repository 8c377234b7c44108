"""Kills and stops of hosts in a run of eight workers on four: what hangs, what is left, how long recovery takes.

``python benchmarks hosts [--faults 20] [--seed 0]``. Hosts are process trees of this machine, each with an
agent. A kill ends a whole host but the first (agent and workers, by SIGKILL) and starts it again, or ends one worker of
any host; a stop freezes a host for up to eight seconds. At the end the losses are compared to those of the same plan
run at home.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "runtime"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "extensions" / "hosts"))

from host_helpers import Hosts, free_port
from run_helpers import small_plan

import dtfm_lab as lab
from dtfm_lab.extensions.hosts.export import export, spec_for
from dtfm_lab.extensions.hosts.hosts import RunHost

KINDS = ("kill a host", "kill a worker", "stop a host")


def main() -> None:
    """Print a table of the faults, and what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    before = set(os.listdir(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="hosts-") as name:
        wrong = one_run(Path(name), given.faults, rng)
    made = {one for one in set(os.listdir(tempfile.gettempdir())) - before if one.startswith(("dtfm", "torchelastic"))}
    print(f"folders left in the temporary folder: {len(made)} {sorted(made)}")
    sys.exit(bool(wrong or made))


def one_run(folder: Path, n_faults: int, rng: np.random.Generator) -> int:
    """Carry out the faults; return how many hung, failed or left something behind."""
    plan = small_plan(2, 4)
    held = {"a": (0, 1), "b": (2, 3), "c": (4, 5), "d": (6, 7)}
    hosts = [RunHost(name=name, address="127.0.0.1", workers=workers) for name, workers in held.items()]
    n_iterations = 400 * n_faults + 400
    spec = spec_for(plan, "1f1b", iterations=n_iterations, checkpoint_folder="checkpoints", checkpoint_every=500)
    run = Hosts(export(spec, folder / "run", hosts, port=free_port(), await_s=240), folder / "logs")
    took_s: dict[str, list[float]] = {kind: [] for kind in KINDS}
    hung = 0
    try:
        run.start()
        run.until_iteration(5)
        for number in range(n_faults):
            kind = KINDS[int(rng.integers(3))]
            began_s, done = time.monotonic(), run.last_iteration()
            n_recovered = run.count("recovered")
            victim = run["bcd"[int(rng.integers(3))]]
            if kind == "kill a host":
                victim.kill()
                victim.start()
            elif kind == "kill a worker":
                victim = run["abcd"[int(rng.integers(4))]]
                victim.workers()[0].send_signal(signal.SIGKILL)
            else:
                victim.stop()
                time.sleep(float(rng.uniform(1, 8)))
                victim.go_on()
                began_s, done = time.monotonic(), run.last_iteration()
            try:
                if kind != "stop a host":
                    run.until(lambda events, n=n_recovered: sum(e["event"] == "recovered" for e in events) > n)
                run.until_iteration(max(done, run.last_iteration()) + 2)
            except AssertionError as error:
                hung += 1
                print(f"{number}: {kind} {victim.name}: HUNG or failed\n{error}", flush=True)
                break
            took_s[kind].append(time.monotonic() - began_s)
            print(f"{number}: {kind} {victim.name}: {took_s[kind][-1]:.1f} s until training again", flush=True)
        n_done = run.last_iteration()
        run.first.interrupt()
        statuses = run.wait()
        left = [line for host in run for line in host.left_behind()]
        losses = run.losses()[:n_done]
    finally:
        run.end()
    reference = lab.run(plan, "1f1b", iterations=min(n_done, 300)).context.losses
    unequal = sum(a != b for a, b in zip(losses, reference, strict=False))
    for kind, seconds in took_s.items():
        if seconds:
            print(f"{kind}: {len(seconds)}, median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s")
    print(f"hung: {hung}; processes left: {len(left)} {left}; statuses after Ctrl-C: {statuses}")
    print(f"losses unlike those at home: {unequal} of {min(len(losses), len(reference))}; iterations: {n_done}")
    return hung + len(left) + unequal


if __name__ == "__main__":
    main()
