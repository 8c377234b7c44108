"""Networks, placements and jobs of ``predictions.py``: shapes, schedules and ways to average, two to eight workers.

Links are those of shipped networks, of devices spread evenly over them, and of seeded irregular ones, as
``instances.py`` draws them. Devices are slow ones, no two alike, so that this machine can keep the drawn pace, which
only the paced clock asks for. Where a case names ``workers``, it is that part of a plan for 64 devices that are as they
come, with the message sizes of gpt3-xl, and a small model stands in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from instances import asymmetric, cities, geometric, islands, terrible

import dtfm_lab as lab
from dtfm_lab.domain.job import MODELS as PRESETS
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan

MODELS = {
    "virtual": PRESETS["tiny"],
    "paced": gpt(name="smaller", n_layers=8, d_model=64, n_heads=4, seq_len=32, vocab_size=256, tied=False),
    "real": PRESETS["tiny"],
}
"""Model by clock; the paced clock pads computations to several times their duration, so a small model is enough."""
IRREGULAR = {f"seeded {kind.__name__}": kind for kind in (cities, geometric, islands, asymmetric, terrible)}
PEAK_FLOP_PER_S = 1.5e9, 3e9
"""Least and largest peak of a device, which is drawn between them: slow enough for any machine to keep pace."""
MICROBATCHES = 4
"""Micro-batches of each pipeline."""
PLANNED_STEPS = 20
CLOCKS = ("virtual", "paced", "real")


@dataclass(frozen=True)
class Case:
    """A job on a network, and the clocks that it is run on."""

    network: str
    shape: tuple[int, int]
    """Numbers of stages and replicas."""
    schedule: str
    placement: str = "planned"
    """Either ``planned`` or ``random``."""
    fields: dict[str, object] = field(default_factory=dict)
    """Fields of the job."""
    idle: int = 0
    options: dict[str, object] = field(default_factory=dict)
    """Options of lab.start."""
    clocks: tuple[str, ...] = ("virtual", "paced")

    @property
    def name(self) -> str:
        said = [f"{what} {value}" for what, value in (self.fields | self.options).items()]
        said += [self.placement] * (self.placement != "planned") + [f"{self.idle} idle"] * (self.idle > 0)
        return ", ".join([f"{self.network} {self.shape[0]} x {self.shape[1]} {self.schedule}", *said])


CASES = (
    Case("lecture-hall", (2, 4), "gpipe"),
    Case("lecture-hall", (4, 2), "1f1b", "random"),
    Case("worldwide", (4, 2), "adaptive-1f1b", fields={"synchronisation": "ring"}),
    Case("universities", (2, 2), "interleaved-1f1b", fields={"synchronisation": "hierarchical"}),
    Case("thin-link", (3, 2), "zb-h1", fields={"synchronisation": "central"}),
    Case("thin-link", (3, 2), "1f1b", options={"queueing": "nics"}, clocks=("virtual",)),
    Case("campus", (8, 1), "1f1b", fields={"compression": "fp16"}),
    Case("regional", (1, 4), "gpipe", fields={"synchronisation": "ring", "gradient_compression": "int8"}),
    Case("islands", (2, 3), "gpipe", fields={"synchronisation": "sharded-at-once", "synchronise_every": 3}),
    Case("fat-node", (4, 2), "zb-h1"),
    Case("mixed-gpus", (2, 4), "1f1b", "random", fields={"synchronisation": "sharded-at-once"}),
    Case("volunteers", (4, 1), "zb-h1", "random", fields={"recompute": True}),
    Case("raspberry-pi", (2, 4), "1f1b", fields={"synchronisation": "hierarchical", "compression": "int8"}),
    Case("seeded cities", (4, 2), "adaptive-1f1b", idle=1),
    Case(
        "seeded geometric",
        (3, 2),
        "1f1b",
        "random",
        idle=1,
        fields={"synchronisation": "central", "synchronise_every": 2},
    ),
    Case("seeded asymmetric", (2, 3), "zb-h1", fields={"synchronisation": "ring", "compression": "fp16"}),
    Case("seeded terrible", (5, 1), "gpipe", idle=2),
    Case("seeded islands", (2, 4), "interleaved-1f1b", "random"),
    Case("worldwide", (8, 8), "1f1b", options={"workers": (8, 1)}),
    Case("spot", (8, 8), "gpipe", options={"workers": (4, 2)}),
    Case("lecture-hall", (2, 1), "gpipe", clocks=CLOCKS),
    Case("lecture-hall", (2, 1), "1f1b", clocks=("real",)),
    Case("lecture-hall", (2, 1), "zb-h1", clocks=("real",)),
    Case("lecture-hall", (2, 1), "interleaved-1f1b", clocks=("real",)),
    Case("lecture-hall", (1, 2), "gpipe", clocks=("real",)),
    Case("lecture-hall", (1, 2), "1f1b", fields={"synchronisation": "ring", "synchronise_every": 3}, clocks=("real",)),
)
"""All cases. On the real clock they have two workers, as many as there are cores."""


def plan_of(case: Case, clock: str) -> Plan:
    n_stages, n_replicas = case.shape
    sizes = {"n_stages": n_stages, "n_replicas": n_replicas}
    if "workers" in case.options:  # the whole network with its own devices, of which a part will run
        topology = lab.load_topology(case.network)
        job = lab.load_job("gpt3-xl", **sizes, global_batch=MICROBATCHES * n_replicas, microbatch=1, **case.fields)
    else:
        topology = slow_devices(links_of(case))
        batch = 2 * MICROBATCHES * n_replicas
        job = lab.load_job("tiny", model=MODELS[clock], **sizes, global_batch=batch, microbatch=2, **case.fields)
    if case.placement == "random":
        return lab.plan(topology, job, planner="random", seed=1, steps=1)
    return lab.plan(topology, job, seed=0, steps=PLANNED_STEPS)


def links_of(case: Case) -> Topology:
    """A network of as many devices as the case needs, spread evenly over the case's network."""
    n = case.shape[0] * case.shape[1] + case.idle
    if kind := IRREGULAR.get(case.network):
        latency_ms, bandwidth_gbps = kind(np.random.default_rng([n, *case.network.encode()]), n)
        return Topology.from_matrices(latency_ms, bandwidth_gbps, name=case.network)
    whole = lab.load_topology(case.network)
    return whole.subset(np.linspace(0, len(whole) - 1, n).round().astype(int).tolist())


def slow_devices(topology: Topology) -> Topology:
    drawn = np.random.default_rng(len(topology)).uniform(*PEAK_FLOP_PER_S, len(topology))
    devices = zip(topology.devices, drawn, strict=True)
    return replace(topology, devices=tuple(replace(device, peak_flop_per_s=peak) for device, peak in devices))
