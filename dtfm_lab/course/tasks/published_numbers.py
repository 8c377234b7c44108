"""Missions about published numbers: which assumption was measured, and a fit that is judged on what it never saw."""

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dtfm_lab.course.checks import (
    MissionsOf,
    fresh_cases,
    near,
    parts_of,
    require,
    value_of,
)
from dtfm_lab.course.mission import Given, NotYet
from dtfm_lab.course.small_networks import two_rooms
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

lesson = MissionsOf("16_published")

TRANSPORTS = ("overlapped", "blocking")


def give_measured(rng: np.random.Generator) -> Mapping[str, Any]:
    """Two plans and their "measured" seconds, by an efficiency and a transport that are not told."""
    network = two_rooms(rng)
    stages = [list(range(4)), list(range(4, 8))]
    efficiency, transport = int(rng.integers(250, 450)) / 1e3, str(rng.choice(TRANSPORTS))
    plans, measured_s = [], []
    for batch in (32, 256):
        job = load_job("gpt2-small", n_stages=2, n_replicas=4, global_batch=batch, microbatch=2)
        plan = evaluate(network, job, stages=stages)
        plans.append(plan)
        run = plan.changed(job=job.with_fields(transport=transport))
        measured_s.append(round(simulate(run, "1f1b", efficiency=efficiency).iteration_s, 5))
    return {"plans": plans, "measured_s": measured_s, "small_s": measured_s[0], "large_s": measured_s[1]} | {
        "_measured_with": (transport, efficiency)
    }


@lesson.mission("what-was-measured", takes=(list, tuple), give=give_measured)
def what_was_measured(answer: Sequence[object], given: Given) -> str:
    transport, efficiency = parts_of(answer, "[transport, efficiency]", str, float)
    hidden_transport, hidden_efficiency = given._measured_with
    require(transport in TRANSPORTS, f"transport is {transport!r:.30}; wanted one of {', '.join(TRANSPORTS)}")
    require(
        transport == hidden_transport,
        "with that transport one of the two rows may be met, but not both with one efficiency",
    )
    near(float(efficiency), hidden_efficiency, slips={hidden_efficiency * 100: "that is per cent; wanted a share"})
    return (
        f"{hidden_transport}, at {hidden_efficiency:.1%} of the peak. Of one row, either would have been right: "
        "that is why a ledger states what it assumes."
    )


@lesson.mission("judged-on-the-unseen", takes=types.FunctionType)
def judged_on_the_unseen(function: Callable[..., Any], given: Given) -> str:
    rng = fresh_cases()
    for n in (3, 4, 9):
        full_s = rng.uniform(1, 20, n)
        measured_s = full_s / rng.uniform(0.2, 0.6, n)
        reached = full_s / measured_s
        others = np.array([np.median(np.delete(reached, i)) for i in range(n)])
        wanted = measured_s * others / full_s - 1
        found = value_of(function, full_s.tolist(), measured_s.tolist())
        try:
            errors = np.asarray(found, dtype=float)
        except (TypeError, ValueError):
            raise NotYet(f"your function returned {found!r:.60}; wanted a list of numbers") from None
        require(errors.shape == (n,), f"for {n} rows it returns {errors.size} numbers; wanted one each")
        seen = measured_s * np.median(reached) / full_s - 1
        if np.allclose(errors, seen) and not np.allclose(seen, wanted):
            raise NotYet("each row was among those that its prediction was fitted to: leave it out")
        by_mean = measured_s * np.array([np.delete(reached, i).mean() for i in range(n)]) / full_s - 1
        require(not np.allclose(errors, by_mean) or np.allclose(by_mean, wanted), "that is the mean of the others")
        signs = "measured over predicted less 1 is wanted, not the other way round: plus is longer than predicted"
        require(not np.allclose(errors, 1 / (wanted + 1) - 1), signs)
        require(bool(np.allclose(errors, wanted)), f"for {n} rows the errors differ from the wanted ones")
    return "What a fit says of its own rows flatters it. lab.calibrate tells the same two errors apart."
