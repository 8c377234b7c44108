"""The settings of DT-FM's evaluation: networks, models, batches and measured seconds.

The authors also timed pipelines on uniform links. An efficiency is fitted to the runs of one pipeline on fast links.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np

from dtfm_lab.domain.job import Job, LayerKind, ModelSpec
from dtfm_lab.domain.job.model import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import from_gbps, from_ms
from dtfm_lab.extensions.published.calibration import median, own_factor
from dtfm_lab.extensions.published.row import numbers
from dtfm_lab.files import load_topology
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation.simulate import iteration_seconds

CASES = ("datacenter", "spot", "universities", "regional", "worldwide")
"""The paper's cases, in its order."""
LAYERS = (24, 32, 40)
"""Numbers of layers in the paper's settings."""
BATCHES = (1024, 2048, 4096)
"""Sequences per iteration in the paper's settings."""
DATACENTER = CASES[0]
WORLDWIDE = CASES[-1]
RENTED_GBPS = {"datacenter": 25.0, "spot": 10.0}
"""Gbit/s of an instance's NIC in the cases that use AWS's own network (section 4, cases 1 and 2).

The matrices in the authors' code have an eighth of these values.
"""
INSIDE_GBPS = 100.0
"""Gbit/s between GPUs of one instance (section 4)."""
VOCABULARY = 50257
N_STAGES = N_REPLICAS = 8
PASSES = 4
"""FLOP of an iteration, divided by the FLOP of its forward, as the paper counts them: 1 for the forward, 2 for the
backward, and 1 for the blocks that the backward recomputes."""


@dataclass(frozen=True)
class Setting:
    """One row of the paper's evaluation: a network, a number of layers and a batch."""

    case: str
    layers: int
    batch: int

    def __str__(self) -> str:
        return f"{self.case}, {self.layers} layers, batch {self.batch}"

    @property
    def topology(self) -> Topology:
        """The network on which the authors measured."""
        return network(self.case)

    @cached_property
    def job(self) -> Job:
        """The work: a classifier on GPT-3 XL's blocks, with sequences of 2,048 tokens and micro-batches of 1, in
        fp16."""
        name = f"gpt3-xl, {self.layers} layers"
        return Job(name=name, model=classifier(self.layers), global_batch=self.batch, microbatch=1, dtype="fp16")

    @property
    def flop(self) -> float:
        """FLOP of an iteration as the paper counts them: only blocks count, including recomputation."""
        blocks = (layer for layer in self.job.modelled().layers if layer.kind is LayerKind.BLOCK)
        return PASSES * self.batch * sum(layer.forward_flop for layer in blocks)

    def published_s(self, system: str) -> float | None:
        """Return the measured seconds of an iteration; None if no number is published. It is the median over
        repetitions or seeds."""
        return _published().get((self.case, self.layers, self.batch, system))


def settings(
    cases: tuple[str, ...] = CASES, layers: tuple[int, ...] = LAYERS, batches: tuple[int, ...] = BATCHES
) -> Iterator[Setting]:
    """Yield the settings, case by case, the smallest model and batch first."""
    for case in cases:
        for n_layers in layers:
            for batch in batches:
                yield Setting(case, n_layers, batch)


@cache
def network(case: str) -> Topology:
    """Return a case's network. In AWS's own network, all GPUs of an instance share its NIC, which has the rented
    rate."""
    topology = load_topology(case)
    if case not in RENTED_GBPS:
        return topology
    n = len(topology)
    hosts = ["" if device.region == "standalone" else device.region for device in topology.devices]
    # GPUs of one instance share its network card; single ones have their own.
    together = np.array([[here == there != "" for there in hosts] for here in hosts])
    rate = np.where(together, from_gbps(INSIDE_GBPS), from_gbps(RENTED_GBPS[case]))
    return Topology.from_matrices(
        latency_s=np.zeros((n, n)),
        bandwidth_bytes_per_s=rate,
        names=list(topology.names),
        regions=[device.region for device in topology.devices],
        hosts=hosts,
        name=f"{case}, as rented",
    )


@cache
def classifier(n_layers: int) -> ModelSpec:
    """Return GPT-3 XL with another number of layers, and a classifier of two classes instead of the language-model
    head.

    The authors trained on QQP, so embedding and loss cost almost nothing (results/gpt3_xl_fp16.md). A pooled
    token goes through a layer of d x d and one of d x 2 (modules/task_modules.py).
    """
    model = gpt(
        name=f"gpt3-xl-{n_layers}",
        n_layers=n_layers,
        d_model=2048,
        n_heads=16,
        seq_len=2048,
        vocab_size=VOCABULARY,
        tied=False,
    )
    d = model.d_model
    head = replace(
        model.layers[-1],
        # A dense layer, then two classes.
        parameters=d * d + d + 2 * d + 2,
        forward_flop=float(2 * d * d + 4 * d),
        output_elements=2,
        held_elements=2 * d,
        moved_elements=2 * d,
    )
    return replace(model, layers=(*model.layers[:-1], head))


@cache
def _published() -> dict[tuple[str, int, int, str], float]:
    found = {}
    for line in numbers("dt_fm_seconds.csv"):
        seconds = [float(line[f"seconds_{i}"]) for i in (1, 2, 3) if line[f"seconds_{i}"]]
        found[line["case"], int(line["layers"]), int(line["batch"]), line["system"]] = statistics.median(seconds)
    return found


SEQUENCES = 96
"""Sequences per pipeline and iteration in the timed runs (``timed_plan``), all between two flushes."""
Line = dict[str, str]


MEASURED = "dt_fm_one_pipeline.csv"


def timed_plan(line: Line) -> Plan:
    """Return the plan of a measured line: DT-FM's GPipe on uniform links."""
    n_replicas = int(line["replicas"])
    n = N_STAGES * n_replicas
    job = Job(
        name="one pipeline",
        model=classifier(24),
        n_stages=N_STAGES,
        n_replicas=n_replicas,
        global_batch=SEQUENCES * n_replicas,
        microbatch=1,
        schedule="gpipe",
        checkpointing="block",
        synchronisation=line["synchronisation"] or "ring",
    )
    far = from_ms(float(line["latency_ms"])) * (1 - np.eye(n))
    rate = np.full((n, n), from_gbps(float(line["bandwidth_gbps"])))
    topology = Topology.from_matrices(latency_s=far, bandwidth_bytes_per_s=rate, name="even links")
    return evaluate(topology, job, rank_map=list(range(n)))


def is_fitted(line: Line) -> bool:
    """True if an efficiency is fitted to the line."""
    return line["replicas"] == "1" and float(line["bandwidth_gbps"]) >= COMPUTE_BOUND_GBPS


def timed_seconds(plan: Plan, efficiency: float) -> float:
    """Return the predicted seconds of an iteration."""
    return iteration_seconds(plan, efficiency=efficiency)


@cache
def own_factors() -> tuple[float, ...]:
    """Return the efficiency that predicts each fitted line exactly. These lines measured one pipeline, with links so
    fast that its passes decide its time."""
    fitted = (line for line in numbers(MEASURED) if is_fitted(line))
    return tuple(own_factor(partial(timed_seconds, timed_plan(line)), float(line["seconds"])) for line in fitted)


COMPUTE_BOUND_GBPS = 5.0
"""From this bandwidth on, sending an activation takes less time than a forward. With slower links, the seconds say
little about the passes."""


def efficiency() -> float:
    """Return the share of a V100's peak that DT-FM's passes reach on AWS p3.2xlarge: the median of ``own_factors``."""
    return median(own_factors())
