"""Translate a plan for a training framework. What the framework cannot express is replaced, and the cost in seconds per
iteration is reported."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dtfm_lab.domain.errors import JobError, LabError
from dtfm_lab.domain.job import Job, LayerKind
from dtfm_lab.domain.job.model.experts import moe, moe_sizes
from dtfm_lab.domain.job.model.families import family_sizes
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted, signed_share
from dtfm_lab.simulation.simulate import iteration_seconds

BY_PIPELINE = "rank = pipeline x stages + stage"
"""The order of ranks in the lab's plans (``Plan.rank_map``) and in Megatron-LM with ``--use-tp-pp-dp-mapping``."""
BY_STAGE = "rank = stage x replicas + pipeline"
"""The order of ranks in torchtitan's mesh (``ParallelDims.build_mesh``: pp, dp, tp) and in DeepSpeed's
``PipeDataParallelTopology``."""
TORCHRUN = (
    'torchrun --nnodes="$NNODES" --node-rank="$1" --nproc-per-node="$2" \\\n    '
    '--master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT"'
)
ZERO = {"none": 0, "zero-1": 1, "zero-2": 2, "zero-3": 3}


class Expressed:
    """A plan while it is translated for a framework: the job as the framework will run it, and one line per thing that
    the framework cannot express."""

    def __init__(self, plan: Plan, framework: str) -> None:
        self.plan, self.framework = plan, framework
        self.job = plan.job
        """The job as the framework will run it, with the replacements so far."""
        self.lost: list[str] = []
        self.priced = 0

    @cached_property
    def own_s(self) -> float | None:
        """Seconds of an iteration of the original plan; None if it cannot be simulated."""
        return seconds_of(self.plan, self.plan.job)

    @property
    def tensor_parallel(self) -> int:
        """Number of GPUs that share each layer."""
        return self.plan.job.tensor_parallel or 1

    def inside(self, *known: str) -> None:
        """Raise LabError if the plan uses context or expert parallelism and the framework lacks it. ``known`` has the
        fields of the kinds that it supports. The others cannot be replaced, because without their GPUs it would be a
        different plan."""
        for what in ("context_parallel", "expert_parallel"):
            if what not in known and (degree := getattr(self.job, what)) > 1:
                raise self.refuse(f"{what} is {degree}; wanted 1, or --to megatron")

    def lose(self, what: str, **instead: Any) -> None:
        """Report that the framework lacks ``what``. Set the job's fields in ``instead`` as its replacement, and report
        what this alone costs."""
        price = self._price(self.plan.job.with_fields(**instead)) if instead else None
        self.job = self.job.with_fields(**instead)
        self.priced += price is not None
        self.lost.append(what if not instead else f"{what}: {price or 'cannot be simulated, so it has no price'}")

    def refuse(self, what: str) -> LabError:
        return LabError(f"--to {self.framework}: {what}")

    def evenly(self) -> None:
        """Give every replica the same number of micro-batches, as all frameworks do."""
        job = self.job
        if len(set(job.microbatch_counts)) == 1:
            return
        # Rounded down, so that the batch does not grow beyond what was planned.
        each = max(1, sum(job.microbatch_counts) // job.n_replicas)
        batch = each * job.n_replicas * job.microbatch
        other = (
            ""
            if batch == job.global_batch
            else f", so its batch is {counted(batch, 'sequence')}, not {job.global_batch}"
        )
        shares = " ".join(map(str, job.microbatch_counts))
        what = f"replicas have {shares} micro-batches; {self.framework} gives each {each}{other}"
        self.lose(what, microbatches_per_replica=None, global_batch=batch)

    def usual(self) -> None:
        """Replace or report what no framework has, such as unequal shares of the batch, compressed messages and local
        updates."""
        self.evenly()
        job, name = self.job, self.framework
        if job.codes_activations or job.codes_gradients:
            self.lose(
                f"messages are compressed; {name} sends them whole", compression="none", gradient_compression=None
            )
        if job.synchronise_every > 1:
            what = (
                f"replicas average every {counted(job.synchronise_every, 'iteration')}; {name} averages gradients in "
                "each"
            )
            self.lose(what, synchronise_every=1, fragments=1, fragment_delay=0)
        if job.modelled().frozen_elements:
            self.lose(f"adapters are trained; {name} has no setting for them, so your script must add them")
        if job.optimizer != "adam":
            self.lose(f"the optimizer is {job.optimizer}; {name} is set to Adam", optimizer="adam")
        if job.frozen_weights != "same":
            what = f"frozen weights are {job.frozen_weights}; {name} has no setting for them, and keeps {job.dtype}"
            self.lose(what, frozen_weights="same")
        kinds = sorted({self.plan.topology.devices[int(d)].gpu for d in self.plan.placement.devices.flat})
        if len(kinds) > 1:
            self.lose(
                f"devices are {', '.join(kinds)}; {name} treats them as equal, and only the order of hosts differs"
            )

    def schedules(self, known: Mapping[str, str], *, in_groups: bool = False) -> str:
        """Return the framework's name for the schedule, from ``known``. A schedule that the framework lacks, or one
        with ``flush_every``, is replaced by 1f1b. With one stage all schedules are the same, and the name for 1f1b is
        returned.

        With ``in_groups``, interleaved 1f1b is also replaced if the number of micro-batches is not a multiple of the
        number of stages.
        """
        job = self.job
        # With one stage there is no pipeline, and all schedules are the same.
        if job.n_stages == 1:
            return known["1f1b"]
        uneven = in_groups and job.schedule_name == "interleaved-1f1b" and job.n_microbatches % job.n_stages
        if job.schedule_name not in known or job.flush_every is not None or uneven:
            what = f"the schedule is {job.schedule_name}{', flushed on the way' if job.flush_every else ''}"
            if uneven:
                what += f" of {counted(job.n_microbatches, 'micro-batch')} on {counted(job.n_stages, 'stage')}"
            self.lose(f"{what}; {self.framework} has 1f1b", schedule="1f1b", warmups=None, flush_every=None)
        return known[self.job.schedule_name]

    def sharded(self, *known: str) -> str:
        """Return how replicas shard state, such as "zero-1": as in the plan, or the closest way that the framework
        has."""
        found = self.job.sharding or "none"
        if found not in known:
            taken = min(known, key=lambda each: (abs(ZERO[each] - ZERO[found]), -ZERO[each]))
            self.lose(f"sharding is {found}; {self.framework} uses {taken}", sharding=taken)
        return self.job.sharding or "none"

    def recomputed(self, *known: str) -> str:
        found = self.job.checkpoints
        if found not in known:
            what = f"checkpointing is {found}; {self.framework} recomputes each block"
            self.lose(what, checkpointing="block", recompute=False)
        return self.job.checkpoints

    def precise(self, **known: str) -> str:
        """Return the framework's name for the precision, from ``known``. If the framework lacks the precision, fp64 is
        replaced by fp32, and any other by bf16."""
        found = self.job.dtype
        if found not in known:
            taken = "fp32" if found == "fp64" else "bf16"
            self.lose(f"precision is {found}; {self.framework} uses {taken}", dtype=taken)
        return known[self.job.dtype]

    def sizes(self, *families: str) -> dict[str, Any]:
        """Return the arguments with which the lab's builder makes this model. Raises LabError for a model of another
        family, with custom sizes or with adapters."""
        model = self.job.modelled()
        if model.frozen_elements:
            raise self.refuse(f"model {model.name} has adapters; wanted full training, without adapters")
        blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
        if model.family in families:
            with contextlib.suppress(JobError):  # such as latent attention, whose sizes do not follow from its layers
                build, sizes = (moe, moe_sizes(model)) if model.n_experts else family_sizes(model, blocks[0])
                # The sizes are read off the layers, so they count only if they give exactly these layers.
                if build(**sizes).layers == model.layers:
                    return sizes
        own = " with custom sizes" if model.family in families else ""
        raise self.refuse(f"model {model.name} is of family {model.family}{own}; wanted one of {', '.join(families)}")

    def blocks(self) -> list[int]:
        """Return the number of blocks of each stage. With interleaving there are several stages per device: stage s is
        on device s modulo the number of devices in a pipeline."""
        interleaves = self.job.schedule_name == "interleaved-1f1b" and self.job.n_stages > 1
        n = self.job.n_stages * (self.job.stages_per_device if interleaves else 1)
        return [sum(layer.kind is LayerKind.BLOCK for layer in layers) for layers in self.job.layers_of(n)]

    def _price(self, job: Job) -> str | None:
        other_s = seconds_of(self.plan, job)
        if self.own_s is None or other_s is None:
            return None
        return (
            f"an iteration takes {other_s:.4g} s instead of {self.own_s:.4g} ({signed_share(other_s / self.own_s - 1)})"
        )

    def losses(self) -> tuple[str, ...]:
        """Return one line per thing that the framework lacks, and a last one with the total cost if several have a
        cost."""
        together = self._price(self.job) if self.priced > 1 else None
        return (*self.lost, *([f"all together: {together}"] if together else []))


@dataclass(frozen=True, kw_only=True)
class FrameworkLaunch:
    """A plan translated for a framework: command, files, and the job as the framework runs it."""

    order: str
    """How ranks are numbered: ``BY_PIPELINE`` or ``BY_STAGE``."""
    script: str
    """The script that each process runs, with its arguments, as shell text."""
    job: Job
    """The job as the framework runs it."""
    lost: tuple[str, ...] = ()
    files: Mapping[str, str]
    """Texts of the files that the framework reads, by file name, without the header of comments."""
    starter: str = TORCHRUN
    equal: bool = False
    """True if the launcher has to start the same number of processes at each call."""


def seconds_of(plan: Plan, job: Job) -> float | None:
    """Return the seconds of an iteration of this placement with another job; None if it cannot be simulated."""
    try:
        return iteration_seconds(plan.changed(job=job))
    except LabError:
        return None
