"""Why the plan of least communication cost and the plan of least seconds differ, in two sentences."""

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning.explain.iteration_analysis import IterationAnalysis, analysed
from dtfm_lab.planning.explain.sentences import counted

ALIKE = 0.005
"""Relative difference of two iterations up to which they take the same time in words."""
MOSTLY = 0.5
"""Share of a part in what it explains from which it is named alone."""


def why_they_differ(plan_by_seconds: Plan, plan_by_communication: Plan) -> str:
    """What each of two plans of one job takes, and what the communication cost does not count that makes it so.

    The cause is that part of the critical path in which the two iterations differ most. Raises PlanError for a job
    without a model.
    """
    fast, slow = analysed(plan_by_seconds), analysed(plan_by_communication)
    both = f"{_described(slow)}; {_described(fast, least='seconds')}."
    if abs(slow.iteration_s - fast.iteration_s) <= ALIKE * slow.iteration_s:
        return f"{both} Here the two do not differ in seconds: what the communication cost counts is what binds."
    if slow.iteration_s < fast.iteration_s:
        return f"{both} The first is the faster one: the search for seconds has not found it yet, wanted more time."
    if not slow.memory.fits:
        both += f" The first does not fit either, which the communication cost does not ask: {slow.memory.sentence}."
    return f"{both} {_cause(fast, slow)}"


def _described(analysis: IterationAnalysis, least: str = "communication cost") -> str:
    plan = analysis.plan
    n, used = len(plan.topology), plan.placement.devices.size
    devices = f"all {n} devices" if used == n else f"{used} of {n} devices"
    begin = "The" if least == "communication cost" else "the"
    return (
        f"{begin} plan of least {least} in the shape {plan.job.n_stages} x {plan.job.n_replicas} uses {devices} and "
        f"takes {format_s(analysis.iteration_s)} an iteration (communication cost {format_s(plan.cost.total_s)})"
    )


def _cause(fast: IterationAnalysis, slow: IterationAnalysis) -> str:
    """The reason for most of the difference, as a sentence."""
    more = {what: slow.by_class[what] - fast.by_class[what] for what in slow.by_class}
    most = max(more, key=lambda what: more[what])
    if most == "device":
        return _computing(fast, slow)
    if most == "synchronisation":
        replicas = slow.plan.job.n_replicas, fast.plan.job.n_replicas
        return (
            f"Synchronisation of {counted(replicas[0], 'replica')} is {format_s(slow.by_class[most])} of the first's "
            f"critical path, of {counted(replicas[1], 'replica')} {format_s(fast.by_class[most])} of the second's: "
            f"what of it hides behind passes, the communication cost does not count."
        )
    links = slow.parts("link")
    hops = counted(slow.plan.job.n_stages - 1, "hop")
    return (
        f"Messages take {format_s(slow.by_class[most])} of the first's critical path, most of them over "
        f"{links[0].name} ({format_s(links[0].seconds)}), and {format_s(fast.by_class[most])} of the second's: each of "
        f"{slow.plan.job.n_microbatches} micro-batches crosses {hops} there and back, with latency each time; the "
        f"communication cost charges each hop once, for a whole mini-batch."
    )


def _computing(fast: IterationAnalysis, slow: IterationAnalysis) -> str:
    first = slow.parts("device")[0]
    plan, other = slow.plan, fast.plan
    device = plan.topology.devices[plan.topology.index(first.name)]
    counts_none = "the communication cost counts no computation"
    if first.share >= MOSTLY:
        idle = first.name in {other.topology.names[d] for d in other.idle_devices}
        left = "which the second leaves idle" if idle else "which does less in the second"
        return (
            f"In the first {device.name} ({device.gpu}), {left}, computes for {format_s(first.seconds)} of the "
            f"critical path: {counts_none}."
        )
    computing = slow.by_class["device"], fast.by_class["device"]
    unequal = len(set(other.job.microbatch_counts)) > 1 or len(set(other.blocks_per_stage or ())) > 1
    shares = ", whose blocks and micro-batches go by the speed of the devices" if unequal else ""
    return (
        f"Computing is {format_s(computing[0])} of the first's critical path, most of it on {device.name} "
        f"({device.gpu}, {format_s(first.seconds)}), and {format_s(computing[1])} of the second's{shares}: "
        f"{counts_none}."
    )
