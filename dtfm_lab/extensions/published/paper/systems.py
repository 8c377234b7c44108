"""The systems as DT-FM's authors ran them: strategies with the grid, ranks and placements of their scripts.

A waterfall explains the ratio that the paper measured, one assumption at a time. It starts from our best Megatron grid
and DT-FM's placement.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.model import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.published.paper.settings import (
    BATCHES,
    DATACENTER,
    LAYERS,
    N_REPLICAS,
    N_STAGES,
    RENTED_GBPS,
    VOCABULARY,
    WORLDWIDE,
    Setting,
    efficiency,
)
from dtfm_lab.extensions.published.row import document
from dtfm_lab.extensions.systems.api import Budget, Outcome, Strategy, outcome_of
from dtfm_lab.extensions.systems.grids import in_rank_order
from dtfm_lab.extensions.systems.modelled.deepspeed import DeepSpeedPipeline, DeepSpeedZero3
from dtfm_lab.extensions.systems.modelled.dt_fm import DTFM, DTFMRandom, random_ranks
from dtfm_lab.extensions.systems.modelled.megatron import AS_SHIPPED, Megatron
from dtfm_lab.extensions.systems.strategy import Branch, described, priced
from dtfm_lab.extensions.systems.waterfall import Switch, Waterfall, waterfall
from dtfm_lab.files import load_job, load_topology
from dtfm_lab.planning import evaluate, plan

RESULTS = "DT-FM's authors, results/NeurIPS2022_submission.md of DS3Lab/Decentralized_FM_alpha"
STEPS = 20
"""Generations of the search for a placement."""
NEVER = 10**6
"""A number of micro-batches between two flushes that no pipeline reaches, so that it is never flushed."""


@described
@dataclass(frozen=True, kw_only=True)
class MegatronOfThePaper(Megatron):
    """Megatron-LM as DT-FM's authors ran it: eight replicas of eight GPUs each, which are pipeline stages times GPUs
    per layer. Blocks are recomputed."""

    checkpointing: str = "block"
    grid: int = N_STAGES
    ranks: str = "in order"

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan | Branch]:
        """Yield the grids of the paper. Random ranks are only used for pipelines whose stages are single GPUs."""
        branches = [one for one in super().branches(topology, job, budget) if isinstance(one, Branch)]
        for found in (one for branch in branches for one in branch.plans()):
            how = found.job
            if how.n_stages * (how.tensor_parallel or 1) != self.grid:
                continue
            if self.ranks == "in order":
                yield priced(found)
            elif how.n_stages == self.grid:
                # Random ranks are only used for pipelines of single GPUs, as in the paper.
                draws = [
                    in_rank_order(topology, how, one, order=self.order)
                    for one in random_ranks(len(topology), 3, budget.seed)
                ]
                seconds = [self.trace(one, budget).iteration_s for one in draws]
                # The median of the draws, because a single draw can be lucky.
                yield draws[int(np.argsort(seconds)[len(seconds) // 2])]


@described
@dataclass(frozen=True, kw_only=True)
class DTFMOfThePaper(DTFM):
    """DT-FM as its authors ran it: one placement per network, found for the message sizes of its code."""

    case: str = ""
    n_stages: int | None = N_STAGES

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """Yield the job in the paper's shape, on the placement of its network (``placement``)."""
        ranks = placement(self.case).rank_map
        for shaped in self._shaped(len(topology), job):
            yield self._flushed(evaluate(topology, shaped, rank_map=ranks))


@cache
def placement(case: str) -> Plan:
    """Return the plan with the lowest communication cost for the matrices and message sizes of DT-FM's code."""
    return plan(load_topology(case), load_job("dtfm-gpt3-xl"), "evolutionary", seed=0, steps=STEPS)


SYSTEMS: dict[str, str] = {
    "dt-fm": "DT-FM",
    "dt-fm-random": "DT-FM without its scheduler",
    "megatron": "Megatron-LM",
    "megatron-random": "Megatron-LM, ranks at random",
    "deepspeed": "DeepSpeed",
}
"""Systems of the table, by key. For Megatron-LM, the paper measured ranks in order in the cases within a data centre,
and random ranks in the other cases."""
HAS_RANDOM = "megatron-random"


def systems_of(system: str, case: str) -> list[Strategy]:
    """Return the strategies that stand for a system of the table in a case. The table has the fastest of them."""
    if system == "dt-fm":
        return [DTFMOfThePaper(case=case)]
    if system == "dt-fm-random":
        return [DTFMRandom(n_stages=N_STAGES, microbatches="given")]
    if system == "megatron":
        return [MegatronOfThePaper(**AS_SHIPPED)]
    if system == "megatron-random":
        return [MegatronOfThePaper(**AS_SHIPPED, ranks="at random")]
    return [
        DeepSpeedZero3(devices="all"),
        DeepSpeedPipeline(sharding="zero-1", microbatches="given", devices="all"),
    ]


def outcome(system: str, setting: Setting, budget: Budget) -> Outcome:
    """Return the outcome of a system of the table in a setting: the fastest of its strategies."""
    found = [outcome_of(one, setting.topology, setting.job, budget) for one in systems_of(system, setting.case)]
    with_plan = [one for one in found if one.iteration_s is not None]
    # If none has a plan, the first says why.
    return min(with_plan, key=lambda one: one.iteration_s or 0.0) if with_plan else found[0]


def rival(case: str) -> str:
    """Return the system that the paper's ratios compare with: Megatron-LM with ranks in order in data centres, and with
    random ranks elsewhere."""
    return "megatron" if case in RENTED_GBPS else HAS_RANDOM


def published_name(system: str, case: str) -> str:
    """Return the name of a system in the table of published seconds. For Megatron-LM it names the fastest setting of
    this case."""
    if system == "megatron":
        return "megatron-p4t2" if case == DATACENTER else "megatron-p8"
    return "megatron-p8-random" if system == HAS_RANDOM else system


assert N_STAGES == N_REPLICAS, "so that stages x GPUs a layer and replicas are all 64"


def papers_waterfall(layers: int = LAYERS[0], batch: int = BATCHES[0]) -> Waterfall:
    """Return the waterfall of a ratio: Megatron-LM's seconds divided by DT-FM's, world-wide, in a setting of the paper.

    It leads from this lab's earlier assumptions to the measured ratio. Raises LabError for a setting that the paper
    does not have.
    """
    setting = Setting(WORLDWIDE, layers, batch)
    over, under = (setting.published_s(published_name(system, WORLDWIDE)) for system in ("megatron-random", "dt-fm"))
    if over is None or under is None:
        raise LabError(
            f"the paper has no setting with {layers} layers and batch {batch}; wanted {_listed(LAYERS)} layers and "
            f"{_listed(BATCHES)}"
        )
    return waterfall(
        setting.topology,
        _words(setting),
        switches(setting),
        Budget(queueing="pairs"),
        published=round(over / under, 2),
        published_source=f"{RESULTS}: {over:g} s over {under:g} s",
    )


def switches(setting: Setting) -> list[Switch]:
    """Return the switches of the waterfall. Each changes one assumption, in addition to those before it."""
    ours = DTFMOfThePaper(case=WORLDWIDE, flush_every=NEVER, synchronisation="sharded", checkpointing="stage")
    changes: list[dict[str, Any]] = [
        {"strategy": Megatron(**AS_SHIPPED | {"order": "pp-dp"}, transport="overlapped"), "against": ours},
        {"job": setting.job},
        {"strategy": Megatron(**AS_SHIPPED, transport="overlapped")},
        {"strategy": Megatron(**AS_SHIPPED)},
        {"strategy": MegatronOfThePaper(**AS_SHIPPED)},
        {"against": DTFMOfThePaper(case=WORLDWIDE, synchronisation="sharded")},
        {"against": DTFMOfThePaper(case=WORLDWIDE)},
        {"strategy": MegatronOfThePaper(**AS_SHIPPED, ranks="at random")},
        {"budget": Budget(efficiency=efficiency(), queueing="pairs")},
    ]
    stated = document("dt_fm_ratios.yaml")["switches"]
    return [Switch(**about, **change) for about, change in zip(stated, changes, strict=True)]


def _listed(counts: tuple[int, ...]) -> str:
    return ", ".join(map(str, counts[:-1])) + f" or {counts[-1]}"


def _words(setting: Setting) -> Job:
    model = gpt(
        name=f"gpt3-xl-{setting.layers}-words",
        n_layers=setting.layers,
        d_model=2048,
        n_heads=16,
        seq_len=2048,
        vocab_size=VOCABULARY,
    )
    return setting.job.with_fields(model=model)
