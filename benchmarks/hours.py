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
from dtfm_lab.domain.availability import Availability
from dtfm_lab.domain.history import History, Operation
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.elasticity import Costs, PlannedFleet, Policy, replay

N = 8
END_S = 600.0
SCALE = 0.08
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


class AsMeasured:
    """The planned fleet with the seconds that steps and changes took."""

    def __init__(self, fleet: PlannedFleet, step_s: dict[object, float], ratio: float) -> None:
        self._fleet, self._step_s, self._ratio = fleet, step_s, ratio
        self._known: dict[Operation, Operation] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._fleet, name)

    def operation(self, present: frozenset[int], current: Operation | None = None) -> Operation | None:
        return self._timed(self._fleet.operation(present, current))

    def without(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        return self._timed(self._fleet.without(operation, lost))

    def rerouted(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        return self._timed(self._fleet.rerouted(operation, lost))

    def shared(
        self, other: frozenset[int], present: frozenset[int], current: Operation | None, above: float
    ) -> Operation | None:
        return self._timed(self._fleet.shared(other, present, current, above))

    def move_s(self, old: Operation | None, new: Operation) -> float:
        """It is among the seconds of a change."""
        return 0.0

    def _timed(self, found: Operation | None) -> Operation | None:
        if found is None or found.plan is None:
            return found
        if found not in self._known:
            step_s = self._step_s.get(kind_of(found), found.step_s * self._ratio)
            self._known[found] = replace(found, step_s=step_s)
        return self._known[found]


def kind_of(operation: Operation) -> object:
    """Its shape, and how many of each stage have left."""
    grid, names = operation.plan.stages, {f"device-{device}" for device in operation.left}
    return operation.plan.placement.devices.shape, tuple(len(names.intersection(group)) for group in grid)


def fed(measured: History, policy: Policy, resumed_s: list[float]) -> History:
    """The replay with what was measured."""
    lasts, by_shape, ratios = measured.end_s - measured.start_s, {}, []
    for index, operation in enumerate(measured.operations):
        of_it = (measured.operation == index) & (measured.steps > 0)
        if of_it.any() and operation.plan is not None:
            by_shape.setdefault(kind_of(operation), []).extend(lasts[of_it].tolist())
            ratios.append(lasts[of_it].mean() / operation.step_s)
    fleet = AsMeasured(
        PlannedFleet(network=NETWORK, job=JOB), {k: median(v) for k, v in by_shape.items()}, fmean(ratios or [1])
    )
    of_torchft = isinstance(policy, type(POLICIES["torchft"]))
    # whose changes begin with the end of the step that they make void, which its replay says by itself
    change_s = fmean(resumed_s) if resumed_s and not of_torchft else ASKED_S["regroup_s"]

    def played_again(change_s: float) -> History:
        costs = Costs(start_s=0.0, restart_s=max(change_s, ASKED_S["restart_s"]), regroup_s=change_s)
        return replay(measured.availability, fleet, policy, costs)

    again = played_again(change_s)
    if of_torchft and resumed_s:  # a quorum of the seconds that changes took beyond that
        beyond_s = (measured.seconds["reconfiguring"] - again.seconds["reconfiguring"]) / len(resumed_s)
        again = played_again(max(change_s + beyond_s, ASKED_S["regroup_s"]))
    return again


def shared_s(measured: History) -> list[tuple[float, float]]:
    """Seconds of a step of each way of sharing that worked, predicted and measured."""
    lasts, found = measured.end_s - measured.start_s, []
    for index, operation in enumerate(measured.operations):
        of_it = (measured.operation == index) & (measured.steps > 0)
        if operation.left and of_it.sum() > 1:
            found.append((operation.step_s, float(np.median(lasts[of_it]))))
    return found


def played(seed: int, policy_name: str, undisturbed: np.ndarray) -> tuple[float, float, list[float]]:
    """Errors of the goodput before and after measuring, and wall seconds of every change."""
    policy = POLICIES[policy_name]
    availability = Availability.drawn(NETWORK, END_S, mean_life_s=900.0, mean_absence_s=150.0, seed=seed)
    predicted = lab.replay(NETWORK, JOB, availability, policy, checkpoint_s=0.0, bound=False, **ASKED_S)
    plan, losses, wall_s = lab.plan(NETWORK, JOB, seed=0, steps=1), {}, []

    def note(event: dict) -> None:
        if event["event"] == "iteration":
            losses[event["iteration"]] = event["loss"]
        elif event["event"] == "resumed":
            wall_s.append(event["lost_s"])

    began = time.monotonic()
    measured = lab.run(
        plan, availability=availability, policy=policy, time_scale=SCALE, progress=note, seed=1, **ASKED_S
    )
    took_s = time.monotonic() - began
    again = fed(measured, policy, [max(each / SCALE, ASKED_S["regroup_s"]) for each in wall_s])
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
    undisturbed = np.array(lab.run(lab.plan(NETWORK, JOB, seed=0, steps=1), iterations=160, seed=1).context.losses)
    found = [played(seed, list(POLICIES)[seed % len(POLICIES)], undisturbed) for seed in range(n)]
    before, after, changes = zip(*found, strict=True)
    every_s = [each for one in changes for each in one]
    print(
        f"{n} traces: error before measuring {min(before):+.1%} to {max(before):+.1%}, after {min(after):+.1%} to "
        f"{max(after):+.1%}, median {median(map(abs, after)):.1%}; a change takes {median(every_s):.2f} wall seconds "
        f"in the median of {len(every_s)}, {max(every_s):.2f} at most"
    )


if __name__ == "__main__":
    main()
