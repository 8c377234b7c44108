"""Played hours against their replay: random fleets of eight workers whose devices leave and come, run for real.

Of every trace: samples a second as predicted before anything was measured, as measured, and as the same replay says
once it is given the measured seconds of steps and of changes; losses against a run that nothing happens to; processes
that are left behind. The opponent is the replay itself. Where peers shared the work of who left, the seconds of a step
as predicted over those measured.
"""

import subprocess
import sys
import time
from dataclasses import replace
from statistics import fmean, median

import numpy as np

import dtfm_lab as lab
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.elasticity.api import PlannedFleet, Policy, ReconfigurationCosts, replay
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.history import History, Operation, TimeUse
from dtfm_lab.extensions.elasticity.policy import Response, Situation

N = 8
END_S = 600.0
SCALE = 0.08
"""Wall seconds of a second of the run. At 0.3 two cores keep up with the seconds that most changes are to take:
``python benchmarks hours 6 0.3``, six traces of three minutes."""
NETWORK = Topology.from_matrices(
    np.full((N, N), 30.0), np.full((N, N), 0.005), name="eight", gpu="laptop", peak_flop_per_s=1e7
)
MODEL = gpt(name="small", n_layers=4, d_model=32, n_heads=2, seq_len=16, vocab_size=256, tied=False)
JOB = lab.load_job("tiny").with_fields(
    n_stages=None, n_replicas=None, model=MODEL, dtype="fp64", global_batch=24, microbatch=1
)
POLICIES = {
    "oobleck": lab.policies["oobleck"](joins="step", every_s=60.0),
    "restart": lab.policies["restart"](every_s=60.0),
    "torchft": lab.policies["torchft"](),
    "swarm": lab.policies["swarm"](every_s=60.0, keeps_step=False),
    "recycle": lab.policies["recycle"](every_s=60.0),
    "goodput": lab.policies["goodput"](every_s=60.0, keeps_step=False),
}
ASKED_S = {"start_s": 0.0, "restart_s": 15.0, "regroup_s": 5.0}


def kind_of(operation: Operation) -> object:
    """Its shape and shares, which are smaller where a policy's groups of replicas shrink, and how many of each stage
    have left."""
    grid, names = operation.plan.stages, {f"device-{device}" for device in operation.left}
    left = tuple(len(names.intersection(group)) for group in grid)
    return operation.plan.placement.devices.shape, operation.plan.job.microbatch_counts, left


def steps_s(measured: History) -> tuple[dict[object, float], float]:
    """Seconds of a step of each kind of operation, and of all over those planned."""
    lasts_s, by_kind, ratios = measured.end_s - measured.start_s, {}, []
    for index, operation in enumerate(measured.operations):
        of_it = (measured.operation == index) & (measured.steps > 0)
        if of_it.any() and operation.plan is not None:
            by_kind.setdefault(kind_of(operation), []).extend(lasts_s[of_it].tolist())
            ratios.append(lasts_s[of_it].mean() / operation.step_s)
    return {kind: median(seconds) for kind, seconds in by_kind.items()}, fmean(ratios or [1])


def changes_s(measured: History) -> dict[bool, float]:
    """Seconds of a change in the mean: of those to peers who share the work of who left (True), and of all others."""
    changing, lasts_s = measured.state == TimeUse.RECONFIGURING, measured.end_s - measured.start_s
    found: dict[bool, list[float]] = {True: [], False: []}
    for rows in np.split(np.arange(len(changing)), np.flatnonzero(np.diff(changing)) + 1):
        if changing[rows[0]] and rows[0] > 1:  # those before are the start's
            to = measured.operations[measured.operation[rows[-1]]]
            found[bool(to.left)].append(float(lasts_s[rows].sum()))
    return {sharing: fmean(seconds or [0.0]) for sharing, seconds in found.items()}


def fed(measured: History, policy: Policy) -> History:
    """The replay with the seconds of steps and changes that were measured. The policy decides by those that it was told
    of, as it did."""
    (step_s, ratio), change_s = steps_s(measured), changes_s(measured)
    timed: dict[Operation, Operation] = {}
    told: dict[Operation, Operation] = {}
    pause_until_s, every_s = 0.0, policy.every_s  # as the policy has them

    class AsMeasured(type(policy)):
        def decide(self, now: Situation) -> Response | None:
            nonlocal pause_until_s, every_s
            before, left_s = told.get(now.operation), max(0.0, pause_until_s - now.time_s)
            response = super().decide(replace(now, operation=before, pause_left_s=left_s))
            to = None if response is None else response.operation
            if to is not None and to is not before:
                pause_until_s = now.time_s + response.pause_s
                response.pause_s = max(response.pause_s, change_s[bool(to.left)] if before is not None else 0.0)
            if to is not None:
                every_s = every_s if response.every_s is None else response.every_s
                # as many steps between two checkpoints as it counts
                response.every_s = every_s * step_s.get(kind_of(to), to.step_s * ratio) / to.step_s
                if to not in timed:
                    timed[to] = replace(to, step_s=step_s.get(kind_of(to), to.step_s * ratio))
                    told[timed[to]] = to
                response.operation = timed[to]
            return response

    fleet, costs = PlannedFleet(network=NETWORK, job=JOB), ReconfigurationCosts(**ASKED_S)
    return replay(measured.availability, fleet, AsMeasured(**vars(policy)), costs)


def shared_s(measured: History) -> list[tuple[float, float]]:
    """Seconds of a step of each way of sharing that worked, predicted and measured."""
    lasts, found = measured.end_s - measured.start_s, []
    for index, operation in enumerate(measured.operations):
        of_it = (measured.operation == index) & (measured.steps > 0)
        if operation.left and of_it.sum() > 1:
            found.append((operation.step_s, float(np.median(lasts[of_it]))))
    return found


def played(seed: int, policy_name: str, undisturbed: np.ndarray, scale: float) -> tuple[float, float, list[float]]:
    """Errors of the goodput before and after measuring, and wall seconds of every change."""
    policy = POLICIES[policy_name]
    availability = Availability.sampled(NETWORK, END_S, mean_life_s=900.0, mean_absence_s=150.0, seed=seed)
    predicted = lab.replay(NETWORK, JOB, availability, policy, checkpoint_s=0.0, bound=False, **ASKED_S)
    plan, losses, wall_s = lab.plan(NETWORK, JOB, seed=0, steps=1), {}, []

    def note(event: dict) -> None:
        if event["event"] == "iteration":
            losses[event["iteration"]] = event["loss"]
        elif event["event"] == "resumed":
            wall_s.append(event["lost_s"])

    began = time.monotonic()
    measured = lab.run(
        plan, availability=availability, policy=policy, time_scale=scale, progress=note, seed=1, **ASKED_S
    )
    took_s = time.monotonic() - began
    again = fed(measured, policy)
    before, after = lab.compare(predicted, measured), lab.compare(again, measured)
    whole = policy_name != "torchft"  # of the same batches
    apart = max((abs(losses[i] / undisturbed[i] - 1) for i in losses if i < len(undisturbed)), default=0.0)
    left = subprocess.run(["pgrep", "-fc", "dtfm_lab.runtime.worker.local_run [0-9]"], capture_output=True, text=True)
    print(
        f"{policy_name:8} {seed:3} {len(measured.losses):2} losses, {len(wall_s):2} changes; samples a second "
        f"{predicted.goodput:.3f} predicted, {measured.goodput:.3f} measured ({before.goodput_error:+.1%}), "
        f"{again.goodput:.3f} as measured ({after.goodput_error:+.1%}); steps {int(measured.steps.sum())} and "
        f"{int(again.steps.sum())}, redone {measured.seconds['redone']:.0f} and {again.seconds['redone']:.0f} s; "
        f"losses {'equal to ' + format(apart, '.0e') if whole else 'of other batches'}; {took_s:.0f} s, "
        f"{left.stdout.strip()} fork server",
        flush=True,
    )
    for predicted_s, step_s in shared_s(measured):
        print(
            f"         shared: a step of {step_s:.2f} s measured, {predicted_s / step_s - 1:+.1%} predicted", flush=True
        )
    return before.goodput_error, after.goodput_error, wall_s


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    scale = float(sys.argv[2]) if len(sys.argv) > 2 else SCALE
    undisturbed = np.array(lab.run(lab.plan(NETWORK, JOB, seed=0, steps=1), iterations=160, seed=1).context.losses)
    found = [played(seed, list(POLICIES)[seed % len(POLICIES)], undisturbed, scale) for seed in range(n)]
    before, after, changes = zip(*found, strict=True)
    every_s = [each for one in changes for each in one]
    print(
        f"{n} traces: error before measuring {min(before):+.1%} to {max(before):+.1%}, after {min(after):+.1%} to "
        f"{max(after):+.1%}, median {median(map(abs, after)):.1%}; a change takes {median(every_s):.2f} wall seconds "
        f"in the median of {len(every_s)}, {max(every_s):.2f} at most"
    )


if __name__ == "__main__":
    main()
