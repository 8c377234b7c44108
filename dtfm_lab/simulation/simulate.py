"""Interpreter 1: play a schedule in virtual time."""

from __future__ import annotations

import platform
from collections import deque
from importlib.metadata import version

from dtfm_lab.domain.errors import ScheduleError, TraceError
from dtfm_lab.domain.links import OutgoingLinks, Passage
from dtfm_lab.domain.messages import message_bytes
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, SYNCHRONISATION, Action, Schedule, lower, needs
from dtfm_lab.domain.trace import RunContext, Span, Trace
from dtfm_lab.simulation.durations import Durations, analytic, from_profile
from dtfm_lab.simulation.schedules import schedules


def simulate(plan: Plan, schedule: str | None = None, *, like: Trace | RunContext | None = None) -> Trace:
    """Predict one iteration of a plan.

    Parameters
    ----------
    schedule
        A name in ``schedules``; the job's own where None.
    like
        A measured trace of this plan, or the context of a run that goes on: its schedule, its clock
        and the profile taken before it are used (never its own spans), and links are free where the
        run used real ones.

    Raises
    ------
    JobError
        The job holds message sizes only.
    UnknownName
        No schedule of that name.
    TraceError
        ``like`` is of another plan.
    """
    job = plan.job
    job.modelled()
    ran = like.context if isinstance(like, Trace) else like
    if ran is not None:
        _check_same_plan(plan, ran)
        schedule = schedule or ran.schedule
    built = schedules[schedule or job.schedule](job.n_stages, job.n_microbatches)
    profile = analytic(plan) if ran is None else ran.profile
    context = RunContext(
        source="simulated",
        clock="model" if ran is None else ran.clock,
        schedule=built.name,
        links="drawn" if ran is None else ran.links,
        devices=plan.device_names,
        topology=plan.topology.name,
        topology_fingerprint=plan.topology.fingerprint,
        job=job.name,
        n_microbatches=job.n_microbatches,
        time_scale=1.0 if ran is None else ran.time_scale,
        profile=profile,
        versions={"dtfm_lab": version("dtfm_lab"), "python": platform.python_version()},
    )
    links = _links(plan, free=context.links == "real")
    return Trace.from_spans(context, play(plan, built, from_profile(profile), links))


def play(plan: Plan, schedule: Schedule, duration: Durations, links: list[OutgoingLinks]) -> list[Span]:
    """Spans of one iteration; ``links`` holds one OutgoingLinks per device of the topology.

    Every worker runs its program until a receive whose send has not been reached; that send wakes it.
    The times follow from the table in ``domain.schedule`` and not from the order of this loop.
    """
    job, grid = plan.job, plan.placement.devices
    programs = lower(schedule, job.n_replicas).programs
    workers = [(s, r) for s in range(job.n_stages) for r in range(job.n_replicas)]
    done: dict[tuple[int, Action], Span] = {}
    passages: dict[tuple[int, Action], Passage] = {}
    position = dict.fromkeys(workers, 0)
    free_s = dict.fromkeys(workers, 0.0)
    awake = deque(workers)
    asleep: dict[tuple[int, Action], tuple[int, int]] = {}

    while awake:
        worker = awake.popleft()
        stage, replica = worker
        program = programs[stage]
        while position[worker] < len(program):
            action = program[position[worker]]
            if action.kind in RECEIVES:
                passage = passages.get((replica, action))
                if passage is None:
                    asleep[replica, action] = worker
                    break
                span = Span(0, replica, action, passage.first_byte_s, passage.delivered_s)
            else:
                wanted = needs(action, job.n_stages, job.n_microbatches, job.n_replicas)
                ready_s = max((done[replica, need].end_s for need in wanted), default=0.0)
                if action.kind in COMPUTE:
                    start_s = max(free_s[worker], ready_s)
                    free_s[worker] = start_s + duration(replica, action)
                    span = Span(0, replica, action, start_s, free_s[worker])
                else:
                    to_stage, to_replica = action.other_end(replica, job.n_replicas)
                    passage = links[int(grid[stage, replica])].carry(
                        int(grid[to_stage, to_replica]),
                        ready_s,
                        message_bytes(job, action),
                        in_turn=action.kind in SYNCHRONISATION,
                    )
                    span = Span(0, replica, action, passage.start_s, passage.end_s)
                    key = (to_replica, action.counterpart())
                    passages[key] = passage
                    if key in asleep:
                        awake.append(asleep.pop(key))
            done[replica, action] = span
            position[worker] += 1
    if asleep:
        stuck = ", ".join(str(action) for _, action in sorted(asleep)[:4])
        raise ScheduleError(f"schedule {schedule.name} cannot finish: nobody ever sends what {stuck} waits for")
    return list(done.values())


def _links(plan: Plan, *, free: bool) -> list[OutgoingLinks]:
    topology = plan.topology
    n = len(topology)
    if free:
        return [OutgoingLinks([0.0] * n, [float("inf")] * n) for _ in range(n)]
    return [OutgoingLinks(topology.latency_s[i], topology.bandwidth_bytes_per_s[i]) for i in range(n)]


def _check_same_plan(plan: Plan, ran: RunContext) -> None:
    if ran.devices != (devices := plan.device_names):
        raise TraceError(f"the trace to predict ran on stages {ran.devices}, this plan has {devices}; wanted the same")
    if ran.topology_fingerprint != plan.topology.fingerprint:
        raise TraceError(
            f"the trace to predict ran on network {ran.topology_fingerprint} ({ran.topology}), "
            f"this plan is for {plan.topology.fingerprint}; wanted the same"
        )
