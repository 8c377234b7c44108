"""Which policy wins where: three jobs over the availabilities that come with the lab, and the share of foresight.

Prints a table of samples a second and shares of the bound, and how often ours is the best; ours against each of the
others by a like-for-like replay, so that a row below 1.00 is a loss. Also how long a replay takes by the change
(``churn speed`` alone, ``churn NETWORK JOB [AVAILABILITY ...]`` with one table).
"""

import sys
import time
from collections.abc import Sequence

import numpy as np

import dtfm_lab as lab
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.availability_files import availability_names

JOBS = (("lecture-hall", "small"), ("campus", "gpt3-xl"), ("mixed-gpus", "llama-3-8b"))
OURS = "goodput"
NOTICE_S = 30.0
"""What Google announces a preemption ahead; Amazon 120."""


def race(network: str, job_name: str, notice_s: float, availabilities: Sequence[str]) -> None:
    """A row for each availability, a column for each policy."""
    job = lab.load_job(job_name, n_stages=None, n_replicas=None)
    names = [OURS, *(name for name in lab.policies if name != OURS)]
    print(f"{job_name} on {network}, departures announced {notice_s:g} s before; share of the bound")
    print(f"{'':22}", *(f"{name:>9}" for name in names), "  best")
    for availability in availabilities:
        histories = {name: lab.replay(network, job, availability, name, notice_s=notice_s) for name in names}
        whole = {name: one.samples - one.skipping_samples for name, one in histories.items()}
        # one bound for all of a row, that of whole batches; who averages less often has its own
        bounds = {n: histories[OURS if one.local_steps == 1 else n].bound_samples for n, one in histories.items()}
        # who averages every so many steps trains something else
        alike = {name: value for name, value in whole.items() if histories[name].local_steps == 1}
        best = max(alike, key=alike.__getitem__)
        others = max(value for name, value in alike.items() if name != OURS)
        shares = " ".join(f"{value / bounds[name]:9.3f}" for name, value in whole.items())
        print(f"{availability:22} {shares}   {best}, ours {whole[OURS] / others:.3f} of the best other", flush=True)


def speed() -> None:
    """Seconds of a core to replay a million events."""
    drawn = Availability.sampled(
        [f"d{i}" for i in range(64)], 3e7, mean_life_s=1800.0, mean_absence_s=1800.0, name="a million events"
    )
    table = {n: float(n) for n in range(1, 65)}
    began = time.process_time()
    history = lab.replay(table, 512, drawn, "oobleck", bound=False, start_s=0.0)
    took_s = time.process_time() - began
    steps = int(np.sum(history.steps))
    each_us = took_s / len(drawn.time_s) * 1e6
    print(f"{len(drawn.time_s)} events and {steps} steps in {took_s:.1f} s: {each_us:.1f} us an event", flush=True)


if __name__ == "__main__":
    speed()
    if sys.argv[1:] == ["speed"]:
        sys.exit()
    for network, job_name in JOBS if len(sys.argv) < 2 else [tuple(sys.argv[1:3])]:
        for notice_s in (0.0, NOTICE_S):
            race(network, job_name, notice_s, sys.argv[3:] or availability_names())
