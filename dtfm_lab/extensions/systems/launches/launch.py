"""A system as it was launched, and what its settings say about the job and the devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.systems.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A system as it was launched, and what its flags say about the job and the devices."""

    strategy: Strategy
    job: Mapping[str, Any]
    """Fields of the job that the flags set."""
    n_devices: int | None = None
    """Number of devices that are launched, the first ones of the network; None for all of them."""
    of_a_replica: int = 1
    """Devices per replica: stages times the GPUs that share a layer, a sequence or experts."""
    seq_len: int | None = None
    """Tokens per sequence; None to keep the job's."""
    accumulation: int | None = None
    """Micro-batches per replica and iteration; None if the launch does not set it. With it, the batch follows from the
    micro-batch, or the micro-batch from the batch."""
    asks: str = field(default="", compare=False)
    """The setting that leaves the batch to the training program, such as Hugging Face's "auto"; empty otherwise."""
    ignored: tuple[str, ...] = field(default=(), compare=False)
    """Names of settings that change no plan."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Settings that have no model, and what the plan assumes instead."""

    @property
    def remarks(self) -> list[str]:
        """One line per note, and one line with all ignored settings."""
        return [*self.notes, *([f"ignored: {', '.join(self.ignored)}"] if self.ignored else [])]

    def keeping_microbatch(self) -> Launch:
        """Return a launch that keeps the job's micro-batch size, unless this launch sets one."""
        if getattr(self.strategy, "microbatches", "given") == "given" or "microbatch" in self.job:
            return self
        return replace(self, strategy=replace(self.strategy, microbatches="given"))  # type: ignore[call-arg]

    def on(self, topology: Topology, job: Job) -> tuple[Topology, Job]:
        """Return the network and the job as launched.

        Raises LabError if the network has too few devices, if the devices do not form whole replicas, or if the batch
        does not suit the number of replicas.
        """
        n = len(topology) if self.n_devices is None else self.n_devices
        if n > len(topology):
            raise LabError(
                f"the flags launch {counted(n, 'process')}; {topology.name} has {counted(len(topology), 'device')}"
            )
        # Whole replicas only: remaining devices would train nothing.
        if n % self.of_a_replica:
            raise LabError(
                f"the flags launch {counted(n, 'process')}{', all devices' if self.n_devices is None else ''}; wanted "
                f"a multiple of {self.of_a_replica}, its stages times the parallelism within hosts"
            )
        fields = self._batch(n // self.of_a_replica, job.global_batch)
        if self.seq_len is not None:
            fields["model"] = job.modelled().with_seq_len(self.seq_len)
        return (topology if n == len(topology) else topology.subset(range(n))), job.with_fields(**fields)

    def _batch(self, replicas: int, otherwise: int) -> dict[str, Any]:
        """Return the fields that the flags set, with the batch and micro-batch for this number of replicas.
        ``otherwise`` is the batch if no flag sets it. Raises LabError if the batch cannot be divided evenly."""
        fields, times = dict(self.job), replicas * (self.accumulation or 1)
        exact = self.accumulation is not None and "microbatch" in fields  # together they determine the batch
        each = times * fields.get("microbatch", 1)
        batch = fields.setdefault("global_batch", each) if exact else fields.get("global_batch", otherwise)
        if batch % each or (exact and batch != each):
            several = "" if self.accumulation is None else f"{self.accumulation} "
            words = f", {several}micro-batches of {fields.get('microbatch', 'any size')} each"
            raise LabError(
                f"the batch is {counted(batch, 'sequence')} on {counted(replicas, 'replica')}{words}; wanted "
                f"{'' if exact else 'a multiple of '}{each}"
            )
        if self.accumulation is not None:
            fields["microbatch"] = batch // times
        return fields
