"""Say in words what a loose lower bound on the iteration time counts and what it leaves out.

``iteration.bounds`` proves the bounds. A bound starts from the computing time of all devices and rises while a search
has time for it. It still leaves out some delays, so a plan far above its bound may be the best one.
"""

from dtfm_lab.costs.efficiency import speeds_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import listed
from dtfm_lab.domain.units import LOOSE_TIMES, counted, format_s
from dtfm_lab.planning.explain.sentences import none_of
from dtfm_lab.planning.iteration.bounds.iteration_bound import MOST_DEVICES_WITH_CUTS

NO_MORE = 1.005
"""If a bound is at most this multiple of the computing time of all devices together, it counts only computing."""


def is_loose(plan: Plan) -> bool:
    """True if the plan's iteration takes more than ``LOOSE_TIMES`` times its lower bound."""
    left = plan.speed_up_left
    return left is not None and left > LOOSE_TIMES and bool(plan.iteration_lower_bound_s)


def loose_bound_words(plan: Plan) -> str:
    """Return a sentence on what a loose bound says about better plans; empty if the bound is not loose.

    ``The search found nothing better in 5 s. No plan takes less than 401 ms, but this lower bound is loose here: it
    counts ..., not ...``
    """
    if not is_loose(plan):
        return ""
    searched = plan.left_open is not None and plan.seconds > 0
    seconds = float(f"{plan.seconds:.2g}")
    found = f"The search found nothing better in {format_s(seconds)}. " if searched else ""
    counts, omits = _work_only(plan) if counts_work_alone(plan) else _each_device(plan)
    return (
        f"{found}{none_of(plan, 'No')} takes less than {format_s(plan.iteration_lower_bound_s or 0.0)}, but this lower "
        f"bound is loose here: it counts {counts}, not {listed(omits)}. A better plan may exist."
    )


def counts_work_alone(plan: Plan) -> bool:
    """True if the bound counts only the computing time of all devices together, so no search has raised it yet."""
    flop = float(plan.to_frame()["flop"].sum())
    speeds = speeds_of(plan.job, plan.topology.devices, plan.efficiency, plan.job.microbatch)
    return (plan.iteration_lower_bound_s or 0.0) <= NO_MORE * flop / sum(speeds)


def _work_only(plan: Plan) -> tuple[str, list[str]]:
    """Return what a bound by the computing time of all devices counts, and what it leaves out."""
    gpus = sum(device.gpus for device in plan.topology.devices)
    noun = "device" if gpus == len(plan.topology) else "GPU"
    counts = f"the passes, as if all {counted(gpus, noun)} computed all the time"
    omits = []
    if plan.job.n_stages > 1:
        omits += ["messages between stages", "the time in which a pipeline fills"]
    if plan.job.n_replicas > 1:
        omits += ["the averaging of gradients"]
    if plan.idle_devices:
        omits += ["idle devices"]
    return counts, omits or ["anything else"]


def _each_device(plan: Plan) -> tuple[str, list[str]]:
    """Return what a bound by each device's own passes and messages counts, and what it leaves out."""
    counts = "each device's passes, messages and averaging over the best links of its kind"
    omits = ["that devices wait for each other's passes"]
    if plan.topology.nic_of is not None:
        omits += ["that devices of a host share its NIC"]
    if len(plan.topology) > MOST_DEVICES_WITH_CUTS:
        omits += [f"which devices are far apart (it does in networks of up to {MOST_DEVICES_WITH_CUTS} devices)"]
    return counts, omits
