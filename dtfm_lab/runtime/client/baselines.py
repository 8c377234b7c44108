"""A plan and simple placements of the same job on the same links, each predicted, run and measured."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.options import takes_options
from dtfm_lab.domain.plan import Plan, cut_subplan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.planning import evaluate
from dtfm_lab.runtime.client import launch
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.client.run_checks import NAME, why_not_trained
from dtfm_lab.runtime.protocol.run_options import RunOptions
from dtfm_lab.simulation import memory, simulate

ORDERLESS = "1f1b"
"""The schedule of a job of one stage, where the order of passes changes nothing but memory."""
COLUMNS = {
    "placement": "object",
    **dict.fromkeys(("stages", "replicas", "sequences"), "Int64"),
    **dict.fromkeys(("cost_s", "predicted_s", "measured_s", "error"), "float64"),
    **dict.fromkeys(("ran", "stand_in", "lacks", "reason"), "object"),
}
"""Columns of the table and their types."""

Placed = Callable[[Plan, int], Plan]
"""(plan, seed) -> its job in another placement. Raises LabError where there is none."""


@dataclass(frozen=True, kw_only=True)
class BaselineRun:
    """One placement: its cost, its prediction and its measurement."""

    name: str
    plan: Plan | None
    """None where there is no such placement."""
    predicted: Trace | None
    """From the profile that was taken before the run."""
    measured: Trace | None
    lacks: str
    """Which devices of the network need more memory than they have; empty where all have enough."""
    reason: str
    """Why there is no placement or no measurement; empty where both are there."""
    number: int
    """Counts the placements from 1 to ``total``."""
    total: int

    @property
    def row(self) -> dict[str, Any]:
        """The row of the table: shape and sequences are those that ran, the cost is the whole placement's."""
        ran = None if self.measured is None else self.measured.context
        running = self.plan if ran is None or self.plan is None else cut_subplan(self.plan, ran.rehearsed)
        predicted_s = None if self.predicted is None else self.predicted.iteration_s
        measured_s = None if self.measured is None else self.measured.iteration_s
        return {
            "placement": self.name,
            "stages": None if running is None else running.job.n_stages,
            "replicas": None if running is None else running.job.n_replicas,
            "sequences": None if running is None else running.job.global_batch,
            "cost_s": None if self.plan is None else self.plan.cost.total_s,
            "predicted_s": predicted_s,
            "measured_s": measured_s,
            "error": None if predicted_s is None or not measured_s else predicted_s / measured_s - 1,
            "ran": "" if ran is None else "all of it" if ran.rehearsed is None else ran.rehearsed.sentence,
            "stand_in": "" if ran is None else ran.stand_in,
            "lacks": self.lacks,
            "reason": self.reason,
        }


def baseline_table(rows: Iterable[BaselineRun]) -> pd.DataFrame:
    """Return one row per placement, in the order in which they ran."""
    return pd.DataFrame([row.row for row in rows], columns=list(COLUMNS)).astype(COLUMNS)


@takes_options(RunOptions, noun="option of a run")
def baseline_runs(plan: Plan, schedule: str | Schedule | None = None, **options: Any) -> Iterator[BaselineRun]:
    """Run the plan itself, then each of ``BASELINES``, one after the other, with the same ``options`` (RunOptions).

    ``seed`` is also that of the random placement. If one placement needs a proxy model, all train it.
    Raises what ``launch.start`` raises for the plan itself; for the others that is their ``reason``.
    """
    how = RunOptions(**options)
    placed: list[tuple[str, Plan | LabError]] = [("this plan", plan)]
    for name, place in BASELINES.items():
        try:
            placed.append((name, place(plan, how.seed)))
        except LabError as error:
            placed.append((name, error))
    if how.stand_in is None:
        parts = [launch.what_runs(each, how.workers)[0] for _, each in placed if isinstance(each, Plan)]
        how = replace(how, stand_in=NAME if any(why_not_trained(part.job) for part in parts) else None)
    for number, (name, found) in enumerate(placed, start=1):
        predicted, measured, lacks = None, None, ""
        reason = str(found) if isinstance(found, LabError) else ""
        if not isinstance(found, LabError):
            under = ORDERLESS if found.job.n_stages == 1 else schedule
            try:
                needs = memory(found, under)
                lacks = "" if needs.fits else needs.sentence
                measured = Run(launch.prepare(found, under, how)).wait()
                predicted = simulate(found, like=measured)
            except LabError as error:
                if found is plan:
                    raise
                reason = str(error)
        yield BaselineRun(
            name=name,
            plan=None if isinstance(found, LabError) else found,
            predicted=predicted,
            measured=measured,
            lacks=lacks,
            reason=reason,
            number=number,
            total=len(placed),
        )


def _random(plan: Plan, seed: int) -> Plan:
    """Put every rank on a device drawn at random."""
    drawn = np.random.default_rng(seed).permutation(len(plan.topology))
    return _by_rank(plan, drawn[: plan.job.n_tasklets].tolist())


def _in_file_order(plan: Plan, seed: int) -> Plan:
    """Put pipeline after pipeline along the network's list of devices."""
    return _by_rank(plan, list(range(plan.job.n_tasklets)))


def _data_parallel(plan: Plan, seed: int) -> Plan:
    """Put the whole model on as many of the plan's devices as there are micro-batches for."""
    job = plan.job
    used = np.sort(plan.placement.devices, axis=None).tolist()
    n_shares = sum(job.microbatch_counts)
    n_replicas = min(len(used), n_shares)
    if n_replicas == 1:
        raise LabError(
            f"job {job.name}: its micro-batches, {n_shares} in all, cannot be shared out to 2 of {len(used)} devices "
            f"or more; wanted 2 or more of both"
        )
    whole = job.with_fields(n_stages=1, n_replicas=n_replicas)
    if job.given_gradient_bytes is not None:
        whole = replace(whole, given_gradient_bytes=job.given_gradient_bytes * job.n_stages)
    return evaluate(plan.topology, whole, stages=[used[:n_replicas]])


BASELINES: dict[str, Placed] = {
    "random placement": _random,
    "file order": _in_file_order,
    "data parallel only": _data_parallel,
}


def _by_rank(plan: Plan, device_of: list[int]) -> Plan:
    ranks: list[int | None] = [None] * len(plan.topology)
    for rank, device in enumerate(device_of):
        ranks[device] = rank
    return evaluate(plan.topology, plan.job, rank_map=ranks)
