"""Predict Megatron-LM and DeepSpeed's ZeRO-3 on Selene, NVIDIA's cluster of A100s, as Megatron-LM's authors measured
them.

The quantity is FLOP/s per GPU. The rows use the systems' strategies with the measured grids. The lab's efficiency
of A100s is fitted to Megatron-LM's rows, so they only show how well it fits.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import TERA
from dtfm_lab.extensions.published.row import Evidence, Row, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import hosts_of, only_plan, simulated_row
from dtfm_lab.extensions.systems.api import Strategy
from dtfm_lab.extensions.systems.modelled.deepspeed import DeepSpeedZero3
from dtfm_lab.extensions.systems.modelled.megatron import AS_SHIPPED, Megatron

SEQUENCE = 2048
"""Tokens per sequence (Narayanan et al. 2021, section 5)."""
VOCABULARY = 51200
"""Size of the vocabulary, from the same section."""
NVLINK_BYTES_PER_S = 197e9
"""Bytes/s that NCCL reaches on eight A100s. This was assumed when the efficiency of A100s was fitted to these rows."""
NETWORK_BYTES_PER_S = 8 * 25e9
"""Bytes/s of a host's eight NICs of 200 Gbit/s together (section 5)."""
ASSUMED = ("checkpointing block", "attention unfused", "memory_traffic", "eight NICs of 200 Gbit/s a host")


@dataclass(frozen=True)
class Measured:
    """One measured configuration: a line of table 1 or 2 of the paper."""

    line: dict[str, str]

    def __getitem__(self, name: str) -> int:
        return int(self.line[name])

    @property
    def published(self) -> float:
        """Measured TFLOP/s per GPU."""
        return float(self.line["tflop_per_s"])

    @property
    def zero_3(self) -> bool:
        return self.line["system"] == "ZeRO-3"

    @property
    def setting(self) -> str:
        """What was measured, in words."""
        sizes = f"{self.line['model']}, {self['gpus']} A100"
        how = "ZeRO-3" if self.zero_3 else f"TP {self['tensor_parallel']} PP {self['stages']}"
        several = f", {self['stages_per_device']} stages a device" if self["stages_per_device"] > 1 else ""
        return (
            f"{sizes}, {how}{several}, micro-batch {self['microbatch']}, batch {self['batch']}, table {self['table']}"
        )

    @property
    def strategy(self) -> Strategy:
        """The system with the measured grid."""
        if self.zero_3:
            return DeepSpeedZero3(
                microbatches="given", devices="all", checkpointing="block", attention="unfused", memory_traffic=True
            )
        return Megatron(
            **AS_SHIPPED,
            tensor_parallel=self["tensor_parallel"],
            n_stages=self["stages"],
            stages_per_device=self["stages_per_device"],
            checkpointing="block",
            attention="unfused",
            memory_traffic=True,
        )

    @property
    def counted_flop(self) -> float:
        """FLOP of an iteration, including a recomputed forward, as the paper's equation 3 counts them."""
        layers, width = self["layers"], self["width"]
        # 24 for a forward, twice as much for the backward, and 24 for the forward again.
        own = 96 * self["batch"] * SEQUENCE * layers * width**2
        return own * (1 + SEQUENCE / (6 * width) + VOCABULARY / (16 * layers * width))

    @property
    def work(self) -> Job:
        """The job that is trained."""
        model = gpt(
            name=self.line["model"],
            n_layers=self["layers"],
            d_model=self["width"],
            n_heads=self["heads"],
            seq_len=SEQUENCE,
            vocab_size=VOCABULARY,
        )
        return Job(
            name="megatron-lm", model=model, global_batch=self["batch"], microbatch=self["microbatch"], dtype="fp16"
        )

    def plan(self) -> Plan:
        """Return the only plan of the system on this many GPUs."""
        return only_plan(self.strategy, selene(self["gpus"]), self.work)

    def row(self, group: str, evidence: Evidence, *assumptions: str) -> Row:
        """Return the line with our prediction, using the paper's own count of FLOP."""
        return simulated_row(
            self.plan(),
            value=lambda found: self.counted_flop / found.trace.iteration_s / self["gpus"] / TERA,
            group=group,
            setting=self.setting,
            quantity="compute",
            unit="TFLOP/s",
            published=self.published,
            evidence=evidence,
            assumptions=(*ASSUMED, *assumptions),
        )


def measured(system: str) -> Iterator[Measured]:
    """Return the lines of a system, ``Megatron-LM`` or ``ZeRO-3``."""
    return (Measured(line) for line in numbers("megatron_sc21.csv") if line["system"] == system)


def selene(n: int) -> Topology:
    """Return a network of n A100s, eight per host."""
    return hosts_of(n, "A100", inside_bytes_per_s=NVLINK_BYTES_PER_S, between_bytes_per_s=NETWORK_BYTES_PER_S)


@published("megatron-lm")
def megatron() -> Iterator[Row]:
    """Yield FLOP/s per GPU by the paper's own count, its equation 3."""
    for one in measured("Megatron-LM"):
        yield one.row("Megatron-LM", Evidence.FITTED, "a ring, not overlapped")


@published("zero-3")
def zero_3() -> Iterator[Row]:
    """Yield FLOP/s per GPU by the paper's own count, its equation 3."""
    for one in measured("ZeRO-3"):
        yield one.row("ZeRO-3", Evidence.TRANSFERRED, "gathers and scatters one layer ahead, behind the passes")
