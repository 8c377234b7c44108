"""Python cells that do the same as what is on the screen."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.systems import Strategy, work_of
from dtfm_lab.widgets.lab_state import LabState, is_plan_of
from dtfm_lab.widgets.shell.python_expressions import (
    SEARCH_S,
    indent,
    job_code,
    keywords,
    literal,
    plan_code,
    topology_code,
)
from dtfm_lab.widgets.staleness import trace_staleness
from dtfm_lab.widgets.what_if.pins import Pin
from dtfm_lab.widgets.what_if.setting import FACTORS, WhatIfSetting


class AskedSystems(NamedTuple):
    """A question to systems: what about, which ones, and the keywords of ``lab.strategies``."""

    topology: Topology
    job: Job
    systems: Sequence[Strategy]
    options: Mapping[str, Any]


def cells(
    lab_state: LabState,
    *,
    what_if: WhatIfSetting | None = None,
    pins: Sequence[Pin] = (),
    run: Mapping[str, Any] | None = None,
    systems: AskedSystems | None = None,
    search_s: float = SEARCH_S,
) -> list[str]:
    """Return the code of a cell for each of network, plan, prediction, what-ifs, run, comparison and systems that there
    is.

    Run in a fresh namespace, the cells give the same numbers, but for a real run's measured times. The lab's state is
    not changed. A thread may call this, as it may search again.

    Parameters
    ----------
    what_if, pins
        The what-if panel's setting and its pins.
    run
        Keywords of ``lab.run`` that the measured trace does not hold; None and empty ones are left out.
    systems
        The systems that were asked, about what and how; None where none was.
    search_s
        Seconds for repeating the plan's search, to see whether it finds the plan again; 0 writes the placement.
    """
    plan, drawn = lab_state.plan, lab_state.topology
    topology = drawn if plan is None else plan.topology
    if topology is None:
        return ["import dtfm_lab as lab"]
    job, planned = _job_and_plan(lab_state, search_s)
    network = topology_code(topology)
    task = None if job is None else job_code(job)
    imports = ["import dtfm_lab as lab", *dict.fromkeys((*network.imports, *(task.imports if task else ())))]
    begin = [*sorted(imports, key=lambda line: (line.startswith("from"), line)), f"topology = {network.text}"]
    if task is not None:
        begin.append(f"job = {task.text}")
    made = ["\n".join(begin)]
    if plan is None:
        return made
    shown = "plan.cost.total_s, plan.gap"
    if plan.iteration_s is not None and plan.objective != "communication":
        shown = "plan.iteration_s, plan.iteration_lower_bound_s, plan.price_per_billion_tokens, plan.cost.total_s"
    made.append(f"plan = {planned}\n{shown}")
    made += _predicted(lab_state, plan)
    if what_if is not None and (differing := _what_if(lab_state, plan, what_if)):
        made.append(differing)
    if pins:
        made.append(_pinned(plan, pins))
    if lab_state.measured is not None:
        made += _run(lab_state, lab_state.measured, run or {})
    if systems is not None:
        made.append(_systems(systems, topology, job))
    if drawn is not None and drawn.fingerprint != plan.topology.fingerprint:
        other = topology_code(drawn)
        made.append("\n".join(["# drawn since, and not planned yet", *other.imports, f"drawn = {other.text}"]))
    return made


def _job_and_plan(lab_state: LabState, search_s: float) -> tuple[Job | None, str]:
    """Return the job of the code, and the code of its plan: the job that is chosen, with what it leaves open, where a
    search for it finds the plan again, else the plan's own with all that was chosen for it."""
    plan, chosen = lab_state.plan, lab_state.job
    if plan is None:
        return chosen, ""
    if chosen is not None and chosen != plan.job and is_plan_of(plan.job, chosen):
        code = plan_code(plan, search_s, chosen)
        if code.startswith("lab.plan("):
            return chosen, code
        return plan.job, code
    return plan.job, plan_code(plan, search_s)


def _predicted(lab_state: LabState, plan: Plan) -> list[str]:
    if plan.job.model is None:
        return []  # priced, not simulated
    given = keywords({"schedule": lab_state.schedule, "queueing": lab_state.queueing})
    name = _name(lab_state, plan)
    lines = [] if name == "plan" else [f"{name} = {_with_job(plan, lab_state.choices)}"]
    return ["\n".join([*lines, f"predicted = lab.simulate({name}, {given})", "lab.figures.gantt(predicted)"])]


def _name(lab_state: LabState, plan: Plan) -> str:
    """Return the variable that holds the plan with the choices; ``plan`` where the choices change nothing."""
    return "plan" if _with_job(plan, lab_state.choices) == "plan" else "tried"


def _with_job(plan: Plan, choices: Mapping[str, Any]) -> str:
    """Return code of the plan with those job options that differ from its own."""
    differing = {name: value for name, value in choices.items() if getattr(plan.job, name) != value}
    return f"lab.with_job(plan, {keywords(differing)})" if differing else "plan"


def _tried(plan: Plan, setting: WhatIfSetting) -> str:
    """Return code of the plan under a setting: another job, and another network under the same placement."""
    job = _with_job(plan, setting.job_changes)
    factors = {what: value for what in FACTORS if (value := getattr(setting, what)) != 1.0}
    if not factors:
        return job
    return f"lab.evaluate(\n    topology.scaled({keywords(factors)}),\n    {job}.job,\n    rank_map=plan.rank_map,\n)"


def _simulated(setting: WhatIfSetting) -> str:
    return keywords({"schedule": setting.schedule, "queueing": setting.queueing})


def _what_if(lab_state: LabState, plan: Plan, setting: WhatIfSetting) -> str:
    """Return the what-if cell; empty where the setting is what the lab has."""
    chosen = lab_state.chosen_plan
    if chosen is None or setting == WhatIfSetting.of(chosen, lab_state.schedule, lab_state.queueing):
        return ""
    return "\n".join(
        [
            f"what_if = {_tried(plan, setting)}",
            f"answer = lab.simulate(what_if, {_simulated(setting)})",
            "answer.iteration_s, answer.metrics, what_if.cost.total_s",
        ]
    )


def _pinned(plan: Plan, pins: Sequence[Pin]) -> str:
    rows = []
    for pin in pins:
        simulated = f"lab.simulate(\n    {indent(_tried(plan, pin.setting), 4)},\n    {_simulated(pin.setting)},\n)"
        rows.append(f"    {pin.name!r}: {indent(simulated, 4)},\n")
    return f"pinned = {{\n{''.join(rows)}}}\n{{name: trace.iteration_s for name, trace in pinned.items()}}"


def _systems(systems: AskedSystems, topology: Topology, job: Job | None) -> str:
    """Return the cell that asks the systems again, about the network and the job that they were asked about."""
    lines, names = [], {"topology": "topology", "job": "job"}
    if systems.topology.fingerprint != topology.fingerprint:
        network = topology_code(systems.topology)
        names["topology"] = "asked_topology"
        lines += [*network.imports, f"asked_topology = {network.text}"]
    if job is None or work_of(job) != work_of(systems.job):
        task = job_code(systems.job)
        names["job"] = "asked_job"
        lines += [*task.imports, f"asked_job = {task.text}"]
    listed = "".join(f"    {_system(one)},\n" for one in systems.systems)
    given = ", ".join(filter(None, [f"systems=[\n{listed}]", keywords(systems.options)]))
    lines += [f"strategies = lab.strategies({names['topology']}, {names['job']}, {given})", "strategies.to_frame()"]
    return "\n".join(lines)


def _system(strategy: Strategy) -> str:
    """Return a system by its name, or with the assumptions that differ from its model's."""
    differing = {
        one.name: value for one in strategy.assumptions if (value := getattr(strategy, one.field)) != one.default
    }
    return f"lab.systems.variant({strategy.name!r}, {keywords(differing)})" if differing else repr(strategy.name)


def _run(lab_state: LabState, measured: Trace, options: Mapping[str, Any]) -> list[str]:
    context = measured.context
    options_given: dict[str, Any] = {
        "schedule": context.schedule,
        "iterations": measured.n_iterations,
        "clock": context.clock,
        "queueing": context.queueing,
    }
    if context.runs_on != "cpu":
        options_given["runs_on"] = context.runs_on
    if context.rehearsed is not None:
        options_given["workers"] = (len(context.devices), len(context.devices[0]))
    options_given |= {
        name: value for name, value in options.items() if value not in (None, "", 0) and name not in options_given
    }
    name = "plan" if lab_state.plan is None else _name(lab_state, lab_state.plan)
    stale = trace_staleness(lab_state, measured)
    notes = [f"# measured before: {stale}"] if stale else []
    notes += [f"# {fault.device} {fault.how} in iteration {fault.iteration}" for fault in context.faults]
    given = [f"    {option}={literal(value)}," for option, value in options_given.items()]
    made = ["\n".join([*notes, "measured = lab.run(", f"    {name},", *given, ")"])]
    if lab_state.comparison is not None:
        made.append(
            f"predicted = lab.simulate({name}, like=measured)\n"
            "comparison = lab.compare(predicted, measured)\ncomparison"
        )
        made.append(f"refit = lab.refit(comparison, {name})\nrefit.sentence")
    return made
