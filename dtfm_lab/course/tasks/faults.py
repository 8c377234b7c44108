"""Missions about workers that die: survive it, with a peer and without one, and how often to write a checkpoint."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtfm_lab.course.evidence import near, ran_plan, require, traces_of
from dtfm_lab.course.mission import Given, mission
from dtfm_lab.course.small_networks import plan_of_laptops
from dtfm_lab.domain.trace import Trace

ITERATIONS = 4


def give_victim(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan of four laptops, and the one that is to die."""
    plan = plan_of_laptops(rng, bandwidth=0.2)
    return {"plan": plan, "victim": str(rng.choice(plan.topology.names))}


def give_stage(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan of four laptops, and the stage all of whose devices are to die."""
    return {"plan": plan_of_laptops(rng, bandwidth=0.2), "stage": int(rng.integers(2))}


def same_losses(calm: Trace, disturbed: Trace) -> None:
    """Raise NotYet unless training went on as though nothing had happened."""
    require(
        calm.context.losses == disturbed.context.losses,
        "the losses differ; wanted the same job, seed, rate and number of iterations in both runs, and nothing else",
    )


def undisturbed(calm: Trace, disturbed: Trace) -> None:
    """Raise NotYet unless faults are in the second trace, and none in the first."""
    require(not calm.context.faults, "a worker was lost in the first run, too; wanted [undisturbed, disturbed]")
    require(bool(disturbed.context.faults), "no worker was lost in the second run; wanted [undisturbed, disturbed]")


@mission(
    "survive-a-kill",
    lesson="11_faults",
    title="Survive a kill",
    takes=(list, tuple),
    wanted="[undisturbed, disturbed], two measured Traces",
    minutes=10,
    give=give_victim,
    hints=(
        "`run = lab.start(given.plan, iterations=6)` returns at once; `run.wait()` waits for its end.",
        "`run.wait_for(1)`, then `run.kill(given.victim)`: before the first iteration there is no state to lose.",
        "The same plan, run twice with the same seed, has the same losses: disturb one of the two.",
    ),
    answer="""
        undisturbed = lab.run(given.plan, "1f1b", iterations=6)
        run = lab.start(given.plan, "1f1b", iterations=6)
        run.wait_for(1)
        run.kill(given.victim)
        answer = [undisturbed, run.wait()]
    """,
)
def survive_a_kill(answer: Sequence[object], given: Given) -> str:
    """Of your own plan of four laptops, the worker of `{victim}` is to be killed while it trains. Hand in two measured
    traces `[undisturbed, disturbed]` of four iterations or more whose losses are equal, bit for bit, in the second of
    which `{victim}` was killed and replaced with the state of its peer.
    """
    calm, disturbed = traces_of(answer, "undisturbed", "disturbed")
    for trace in (calm, disturbed):
        ran_plan(trace, given.plan, iterations=ITERATIONS)
    undisturbed(calm, disturbed)
    lost = {fault.device: fault for fault in disturbed.context.faults}
    require(given.victim in lost, f"lost were {', '.join(lost)}; wanted {given.victim}")
    fault = lost[given.victim]
    require("SIGKILL" in fault.how, f"{given.victim} {fault.how}; wanted it killed, as by a power cut")
    require(fault.state_from in given.plan.topology.names, f"its state is from {fault.state_from}; wanted a peer's")
    same_losses(calm, disturbed)
    return (
        f"{fault.state_from} holds the same stage, so it had the same parameters: {fault.lost_s:.2f} s of this machine "
        "were lost, and not a bit of the training."
    )


@mission(
    "no-peer-left",
    lesson="11_faults",
    title="No peer left",
    takes=(list, tuple),
    wanted="[undisturbed, disturbed], two measured Traces",
    minutes=15,
    give=give_stage,
    hints=(
        "Where every replica of a stage is gone, nobody has its parameters. Who could have written them down before?",
        "`checkpoint_folder=` and `checkpoint_every=1` of `lab.start`; then kill all of `given.plan.stages[...]`.",
        "`run.wait_for(2)` and then two kills, one right after the other: before a replacement has asked its peer.",
    ),
    answer="""
        import tempfile

        undisturbed = lab.run(given.plan, "1f1b", iterations=6)
        with tempfile.TemporaryDirectory() as folder:
            run = lab.start(given.plan, "1f1b", iterations=6, checkpoint_folder=folder, checkpoint_every=1)
            run.wait_for(2)
            for device in given.plan.stages[given.stage]:
                run.kill(device)
            answer = [undisturbed, run.wait()]
    """,
)
def no_peer_left(answer: Sequence[object], given: Given) -> str:
    """Now every laptop that holds stage {stage} (counted from 0) dies at once, so that no peer has its parameters. Hand
    in two measured traces `[undisturbed, disturbed]` of four iterations or more, with equal losses: the second lost the
    whole stage and went on.
    """
    calm, disturbed = traces_of(answer, "undisturbed", "disturbed")
    for trace in (calm, disturbed):
        ran_plan(trace, given.plan, iterations=ITERATIONS)
    undisturbed(calm, disturbed)
    from_disk = {fault.device for fault in disturbed.context.faults if "checkpoint" in fault.state_from}
    stage = set(given.plan.stages[given.stage])
    require(
        stage <= from_disk,
        f"back from a checkpoint are {', '.join(sorted(from_disk)) or 'none'}; wanted {', '.join(sorted(stage))}, both "
        "lost at the same moment: one alone is replaced from the other",
    )
    same_losses(calm, disturbed)
    return "A checkpoint is a peer that never dies: older, and slower to ask, but it has every stage."


def give_failures(rng: np.random.Generator) -> Mapping[str, Any]:
    """Devices that fail, and what a checkpoint takes."""
    return {
        "devices": int(rng.choice([16, 32, 64, 128])),
        "days": int(rng.integers(5, 60)),
        "write_s": int(rng.integers(10, 120)),
    }


@mission(
    "checkpoint-every",
    lesson="11_faults",
    title="How often should one write?",
    takes=float,
    wanted="a number of seconds",
    give=give_failures,
    hints=(
        "Written every T seconds, checkpoints take c / T of the time, and a failure costs T / 2 on average: half an "
        "interval is lost. How often does any of the devices fail?",
        "n devices that fail once in M seconds each: one every M / n. So c / T + T / 2 over M / n is to be least.",
        "Where the derivative is 0: T = sqrt(2 c M / n).",
    ),
    answer="""
        answer = (2 * given.write_s * given.days * 86_400 / given.devices) ** 0.5
    """,
)
def checkpoint_every(interval_s: float, given: Given) -> str:
    """Each of {devices} devices fails once in {days} days on average, and one failure throws all back to the newest
    checkpoint. Writing one takes {write_s} s, during which nobody computes. After how many seconds of training should
    the next be written, so that least time is lost? (Young 1974, to the first order; within 2 %.)
    """
    of_one_s = given.days * 86_400
    wanted_s = math.sqrt(2 * given.write_s * of_one_s / given.devices)
    near(
        interval_s,
        wanted_s,
        tolerance=0.02,
        slips={
            wanted_s * math.sqrt(given.devices): "that is for one device alone; the run stops when any of them fails",
            wanted_s / math.sqrt(2): "that takes a failure to lose a whole interval; on average it comes in the middle",
            wanted_s / 60: "that is in minutes",
        },
    )
    share = given.write_s / wanted_s + wanted_s / 2 / (of_one_s / given.devices)
    return (
        f"{share:.1%} of the time is lost, half of it by writing and half by failing: at the least, the two are equal."
    )
