"""A plan assigns a device to every stage and replica of a job, and says what the assignment costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job, LayerKind
from dtfm_lab.domain.network import QUEUEING, Topology, count_words, set_words
from dtfm_lab.domain.plan.choices import values_of
from dtfm_lab.domain.plan.device_table import device_table
from dtfm_lab.domain.registry import current_name, unknown
from dtfm_lab.domain.units import (
    LOOSE_TIMES,
    FloatArray,
    IntArray,
    counted,
    format_s,
    format_share,
    format_times,
    in_figures,
)

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Placement:
    """(stages, replicas) device indices. Row s is the data-parallel group of stage s; column r is pipeline r.

    Raises PlanError if the array is not two-dimensional, is empty, names a device twice, or holds a negative index.
    """

    devices: IntArray

    def __post_init__(self) -> None:
        devices = np.array(self.devices, dtype=np.int64)
        if devices.ndim != 2 or not devices.size:
            raise PlanError(f"placement has shape {devices.shape}; wanted (stages, replicas)")
        if (low := int(devices.min())) < 0:
            raise PlanError(f"placement names device {low}; wanted 0 or more")
        flat = np.sort(devices, axis=None)
        if (twice := flat[1:][flat[1:] == flat[:-1]]).size:
            raise PlanError(f"device {twice[0]} is placed twice; wanted each device at most once")
        # Read-only, since costs and hashes are computed from it once.
        devices.setflags(write=False)
        object.__setattr__(self, "devices", devices)

    def rank_map(self, n_devices: int) -> list[int | None]:
        """Return the rank of each of ``n_devices`` devices: pipeline x n_stages + stage, or None for an idle device."""
        ranks: list[int | None] = [None] * n_devices
        for (stage, replica), device in np.ndenumerate(self.devices):
            ranks[int(device)] = replica * len(self.devices) + stage
        return ranks


@dataclass(frozen=True, eq=False, kw_only=True)
class CostBreakdown:
    """The communication cost of a placement in seconds (equations 1 to 4 of the DT-FM paper)."""

    group_s: FloatArray
    """(S,) seconds to synchronise each stage's data-parallel group (equation 2)."""
    hop_s: FloatArray
    """(S-1,) seconds of the slowest pair between stages s and s+1, forward and back, as the pipelines pair the devices.
    """
    weights_s: FloatArray
    """(S, S) edge weights of the coarsened graph: seconds of the bottleneck matching between every two groups (equation
    3)."""

    @property
    def data_parallel_s(self) -> float:
        """Seconds of the slowest group. All groups synchronise at the same time."""
        return float(self.group_s.max(initial=0.0))

    @property
    def pipeline_s(self) -> float:
        """Seconds of the path through the coarsened graph (equation 4)."""
        return float(self.hop_s.sum())

    @property
    def total_s(self) -> float:
        return self.data_parallel_s + self.pipeline_s


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """A placement of a job on a topology, its costs, and bounds on how much better any other placement can be.

    A plan has two costs and two bounds. The communication cost is DT-FM's; it ranks placements of one shape. The
    seconds of a simulated iteration compare any two plans.
    """

    topology: Topology
    job: Job
    placement: Placement
    cost: CostBreakdown
    lower_bound_s: float
    """Lower bound of the communication cost over all placements of this job, in this shape, on this topology."""
    planner: str
    objective: str = "communication"
    """Name of the quantity that the search minimised."""
    iteration_s: float | None = None
    """Seconds of the simulated iteration, as returned by ``lab.simulate``; None if the plan was not simulated."""
    iteration_lower_bound_s: float | None = None
    """Lower bound, in seconds, of an iteration of any plan within ``scope``, whatever its shape, cut or devices. None
    if no bound was requested."""
    queueing: str = "pairs"
    """Which messages wait for each other in simulation: messages between the same two devices (``pairs``) or messages
    of one NIC (``nics``)."""
    efficiency: Any = None
    """What the plan's seconds assume about computing speed: a share of peak FLOP/s, or a calibration. None stands for
    the lab's share for each GPU. Plan files hold only a share."""
    seed: int | None = None
    generation: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    """Seconds spent searching."""
    left_open: tuple[str, ...] | None = None
    """Job fields that the search chose. None if that is unknown, as for a placement that you built yourself."""
    absent: tuple[str, ...] = ()
    """Names of placed devices that have left. Devices that hold the same stage in other pipelines share their work.
    Costs and bounds assume that all devices are present; ``lab.simulate`` and ``lab.run`` leave the absent ones
    out."""

    def __post_init__(self) -> None:
        job, shape = self.job.settled, self.placement.devices.shape  # a plan leaves nothing to a planner
        object.__setattr__(self, "job", job)
        if shape != (job.n_stages, job.n_replicas):
            raise PlanError(f"placement of {shape[0]} x {shape[1]}; job wants {job.n_stages} x {job.n_replicas}")
        if (worst := int(self.placement.devices.max())) >= len(self.topology):
            raise PlanError(f"placement names device {worst}, but {self.topology.name} has {len(self.topology)}")
        gpus = job.group_gpus
        for index in self.placement.devices.flat:
            if (device := self.topology.devices[int(index)]).gpus != gpus:
                raise PlanError(
                    f"device {device.name} stands for {device.gpus} GPU{'s' * (device.gpus > 1)}; job {job.name} wants "
                    f"groups of {gpus}, such as on topology.grouped({gpus})"
                )
        s = job.n_stages
        for what, wanted in (("group_s", (s,)), ("hop_s", (s - 1,)), ("weights_s", (s, s))):
            if (found := getattr(self.cost, what).shape) != wanted:
                raise PlanError(f"cost of {counted(s, 'stage')}: {what} has shape {found}; wanted {wanted}")
            if not (np.isfinite(getattr(self.cost, what)) & (getattr(self.cost, what) >= 0)).all():
                raise PlanError(f"cost: {what} holds a negative or no number; wanted seconds")
        for what in ("generation", "evaluations", "seconds"):
            if not 0 <= getattr(self, what) < np.inf:
                raise PlanError(f"{what} of the search is {getattr(self, what)}; wanted 0 or more")
        object.__setattr__(self, "queueing", current_name("queueing", self.queueing))
        if self.queueing not in QUEUEING:
            raise unknown("queueing", self.queueing, QUEUEING)
        iteration_s, bound_s = self.iteration_s, self.iteration_lower_bound_s
        if iteration_s is not None and not 0 <= iteration_s < np.inf:
            raise PlanError(f"iteration of {iteration_s} s; wanted 0 or more")
        # A little above the iteration is rounding, not a wrong bound.
        if bound_s is not None and not 0 <= bound_s <= (np.inf if iteration_s is None else iteration_s * (1 + 1e-9)):
            raise PlanError(
                f"lower bound of the iteration is {bound_s} s; wanted 0 to the iteration of {iteration_s} s"
            )
        self._check_absent()
        if not 0 <= self.lower_bound_s <= self.cost.total_s * (1 + 1e-9):
            raise PlanError(f"lower bound is {self.lower_bound_s} s; wanted 0 to the cost of {self.cost.total_s} s")

    def _check_absent(self) -> None:
        placed = {name for group in self.stages for name in group} if self.absent else set()
        for name in self.absent:
            if name not in placed:
                raise unknown("placed device", name, placed)
        for stage, group in enumerate(self.stages if self.absent else ()):
            # With no copy left, no device could continue with this stage.
            if set(group) <= set(self.absent):
                lost = set_words(self.topology.devices, self.placement.devices[stage].tolist())
                raise PlanError(f"stage {stage} has lost {lost}, all that hold it; wanted one of them")

    def __repr__(self) -> str:
        parts = [f"{self.job.n_stages} x {self.job.n_replicas}"]
        if self.absent:
            parts.append(f"without {self.absent_words}")
        if self.job.model is not None:
            parts.append(f"batch of {self.job.batch_words}, micro-batch {self.job.microbatch}")
        if self.iteration_s is not None:
            left, said = self.speed_up_left, self.speed_up_words
            if said and left is not None and left <= LOOSE_TIMES:
                said = f"at most {format_times(left)} times faster with {self.scope}"
            most = f" ({said})" if said else ""
            parts.append(f"iteration {self.iteration_s:.6g} s{most}")
        if self.throughput_words:
            parts.append(self.throughput_words)
        parts.append(f"communication cost {self.cost.total_s:.6g} s, gap {format_share(self.gap)}")
        return f"<Plan {self.job.name} on {self.topology.name}: {', '.join(parts)}, by {self.planner}>"

    def changed(self, **fields: Any) -> Self:
        """Return the plan with these fields replaced, such as the job or the topology.

        ``iteration_s`` and its lower bound are dropped, because they held for the old fields.
        """
        return replace(self, **{"iteration_s": None, "iteration_lower_bound_s": None} | fields)

    @property
    def pinned(self) -> tuple[str, ...]:
        """The choices that the job fixed, as text: ``2 x 2`` (stages x replicas), ``micro-batches of 1``. Some, such as
        compression, are only listed if they differ from the default. Empty if everything was open, or if that is
        unknown."""
        if self.left_open is None:
            return ()
        job, left = self.job, self.left_open
        counts = {"n_stages": counted(job.n_stages, "stage"), "n_replicas": counted(job.n_replicas, "replica")}
        words = [text for what, text in counts.items() if what not in left]
        # Both counts fixed are a shape, which has its own words.
        if len(words) == len(counts):
            words = [f"{job.n_stages} x {job.n_replicas}"]
        others = {
            "microbatch": f"micro-batches of {job.microbatch}",
            "schedule": job.schedule_name,
            "warmups": "given warm-up forwards",
            "blocks_per_stage": "a given cut",
            "microbatches_per_replica": "given shares",
            "checkpointing": f"checkpointing {job.checkpoints}",
        }
        words += [text for what, text in others.items() if what not in left]
        unusual = {
            f"tensor parallelism of {job.tensor_parallel}": job.tensor_parallel != 1 and "tensor_parallel" not in left,
            f"context parallelism of {job.context_parallel}": job.context_parallel > 1,
            f"expert parallelism of {job.expert_parallel}": job.expert_parallel > 1,
            f"sharding {job.sharding}": job.sharding != "none" and "sharding" not in left,
            f"{job.synchronisation} averaging": job.synchronisation != "sharded" and "synchronisation" not in left,
            "averaging during the backward": bool(job.overlap) and "overlap" not in left,
            f"{job.compression} messages": job.compression != "none",
            f"{job.transport} sends": job.transport != "overlapped",
        }
        return (*words, *(text for text, named in unusual.items() if named))

    @property
    def chosen(self) -> dict[str, Any] | None:
        """Values of the job fields that the search chose; None if that is unknown."""
        return values_of(self.job, self.left_open, self.blocks_per_stage, chosen=True)

    @property
    def given(self) -> dict[str, Any] | None:
        """Values of the job fields that a planner could choose but the job pinned; None if that is unknown."""
        return values_of(self.job, self.left_open, self.blocks_per_stage, chosen=False)

    @property
    def scope(self) -> str:
        """The set of plans that the bound on the seconds covers: ``any plan``, or ``any plan of 2 x 2, 1f1b``. If it is
        unknown what the job fixed, ``any plan that its search allowed``."""
        if self.left_open is None:
            return "any plan that its search allowed"
        return f"any plan of {', '.join(self.pinned)}" if self.pinned else "any plan"

    @property
    def gap(self) -> float:
        """Gap of the communication cost, (cost - bound) / cost.

        0 means that the placement is proven optimal for this shape. 0.3 means that another placement could save at most
        30 %. The gap says nothing about the seconds of an iteration.
        """
        total = self.cost.total_s
        return max(0.0, (total - self.lower_bound_s) / total) if total > 0 else 0.0

    @property
    def speed_up_left(self) -> float | None:
        """The iteration time divided by its lower bound: no plan in scope is faster by a larger factor.

        None if either is unknown, infinite if the bound is 0.
        """
        if self.iteration_s is None or self.iteration_lower_bound_s is None:
            return None
        if self.iteration_lower_bound_s == 0:
            return np.inf if self.iteration_s > 0 else 1.0
        return max(1.0, self.iteration_s / self.iteration_lower_bound_s)

    @property
    def speed_up_words(self) -> str:
        """``at most 1.2 times faster with any plan``, ``no plan is faster``, or a note about a loose bound.

        Empty if there is no bound, or if it is 0.
        """
        left, bound_s = self.speed_up_left, self.iteration_lower_bound_s
        if not left or not bound_s:
            return ""
        if left <= 1 + 1e-6:
            return f"{self.scope.replace('any', 'no', 1)} is faster"
        if left > LOOSE_TIMES:
            return f"the lower bound of {self.scope}, {format_s(bound_s)}, is loose"
        return f"at most {format_times(left)} times faster with {self.scope}"

    @property
    def gpus_in_use(self) -> int:
        """Number of GPUs of all devices in use. A device may be a group of GPUs."""
        return sum(self.topology.devices[int(d)].gpus for d in self.placement.devices.flat)

    @property
    def tokens_per_s(self) -> float | None:
        """Throughput of all devices together, in tokens per second; in samples per second for your own module. None if
        the iteration was not simulated, or if the job has no model.
        """
        return self.job.tokens / self.iteration_s if self.job.model is not None and self.iteration_s else None

    @property
    def tokens_per_s_per_gpu(self) -> float | None:
        """``tokens_per_s`` divided by the number of GPUs in use. None if there is no ``tokens_per_s``."""
        return None if self.tokens_per_s is None else self.tokens_per_s / self.gpus_in_use

    @property
    def throughput_words(self) -> str:
        """``83,670 tokens/s (3,486 per GPU)``, or ``per GPU in use`` if devices are idle. Empty if it is unknown."""
        if self.tokens_per_s is None or self.tokens_per_s_per_gpu is None:
            return ""
        words = f"{in_figures(self.tokens_per_s, 4)} {self.job.counted}/s"
        each = f"{in_figures(self.tokens_per_s_per_gpu, 4)} per GPU{' in use' if self.idle_devices else ''}"
        return f"{words} ({each})" if self.gpus_in_use > 1 else words

    @property
    def price_per_hour(self) -> float:
        """US dollars per hour for all devices in use. Devices without a price count as 0."""
        return float(sum(self.topology.devices[int(d)].price_per_hour for d in self.placement.devices.flat))

    @property
    def price_per_billion_tokens(self) -> float | None:
        """US dollars to train on a billion tokens (samples for your own module); None if the iteration was not
        simulated."""
        if self.iteration_s is None:
            return None
        return self.price_per_hour / 3600 * self.iteration_s / self.job.tokens * 1e9

    @property
    def blocks_per_stage(self) -> tuple[int, ...] | None:
        """Number of blocks of each stage, first stage first; None if the job has no model."""
        if self.job.model is None:
            return None
        return tuple(
            sum(layer.kind is LayerKind.BLOCK for layer in layers) for layers in self.job.layers_of(self.job.n_stages)
        )

    @property
    def layers(self) -> tuple[int, ...] | None:
        """Number of layers of each stage, including embedding and head; None if the job has no model."""
        return None if self.job.model is None else self.job.cut(self.job.n_stages)

    @property
    def idle_devices(self) -> tuple[int, ...]:
        used = set(self.placement.devices.ravel().tolist())
        return tuple(i for i in range(len(self.topology)) if i not in used)

    @property
    def idle_words(self) -> str:
        """``idle: 8 of 128, all of host-16``; empty if no device is idle."""
        idle = self.idle_devices
        return f"idle: {count_words(self.topology.devices, idle)}" if idle else ""

    @property
    def stages(self) -> list[list[str]]:
        """Device names of each stage's group, first stage first."""
        return self._named(self.placement.devices)

    @property
    def absent_words(self) -> str:
        """The absent devices as a short list of names."""
        return set_words(self.topology.devices, map(self.topology.index, self.absent))

    @property
    def absent_at(self) -> tuple[tuple[int, int], ...]:
        """(stage, replica) of each absent device."""
        grid = enumerate(self.stages if self.absent else ())
        return tuple((s, r) for s, group in grid for r, name in enumerate(group) if name in self.absent)

    @property
    def device_names(self) -> tuple[tuple[str, ...], ...]:
        """(stages, replicas) device names, in the form that a trace's context holds."""
        return tuple(tuple(names) for names in self.stages)

    @property
    def pipelines(self) -> list[list[str]]:
        """Device names of each pipeline, first stage first."""
        return self._named(self.placement.devices.T)

    @property
    def rank_map(self) -> list[int | None]:
        """Rank of each device (pipeline x n_stages + stage), as DT-FM's launch scripts expect it; None for idle
        devices."""
        return self.placement.rank_map(len(self.topology))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per device, ordered by stage and replica, idle devices last.

        Columns:

        - ``device``; ``stage`` and ``replica`` (missing if idle)
        - ``region``, ``host`` (if any device names one) and ``gpu``
        - ``blocks`` and ``parameters`` of its stage (missing if idle or without a model)
        - ``microbatches`` per iteration
        - ``flop``: forward and backward of an iteration without recomputation
        - ``work_share``: its fraction of all devices' FLOP
        - ``peak_flop_per_s``, ``memory_bytes`` and ``price_per_hour`` (US dollars, 0 if unknown)

        For seconds, see ``lab.simulate``.
        """
        return device_table(self.topology, self.job, self.placement.devices, self.blocks_per_stage)

    def coarse_graph(self) -> nx.Graph[int]:
        """Return the coarsened graph: one node per stage, one edge per pair of groups.

        Nodes carry ``devices`` and ``cost_s``. Edges carry ``weight`` (seconds) and ``on_path``. Edges on the path also
        carry ``cost_s``, the cost as the pipelines pair the devices, and the matching itself: triples of two device
        names and their seconds. ``cost_s`` equals the weight if the pipelines follow the best matching.
        """
        names, grid = self.topology.names, self.placement.devices
        pair_s = self.topology.round_trip_s(self.job.hop_bytes)
        import networkx as nx  # takes a while to load

        graph: nx.Graph[int] = nx.Graph(path=list(range(len(grid))))
        for s, group in enumerate(grid):
            graph.add_node(s, devices=[names[d] for d in group], cost_s=float(self.cost.group_s[s]))
        for a in range(len(grid)):
            for b in range(a + 1, len(grid)):
                graph.add_edge(a, b, weight=float(self.cost.weights_s[a, b]), on_path=b == a + 1)
            if a + 1 < len(grid):
                pairs = [(names[i], names[j], float(pair_s[i, j])) for i, j in zip(grid[a], grid[a + 1], strict=True)]
                graph.edges[a, a + 1].update(cost_s=float(self.cost.hop_s[a]), matching=pairs)
        return graph

    def summary(self) -> dict[str, Any]:
        """Return the fields of ``dtfm-lab plan --json``: plain types, device names, seconds."""
        of_job = ("n_stages", "n_replicas", "tensor_parallel", "sharding", "microbatch", "warmups", "recompute")
        costs = ("lower_bound_s", "gap", "objective", "iteration_s", "iteration_lower_bound_s", "price_per_hour")
        searched = ("queueing", "planner", "seed", "generation", "evaluations", "seconds")
        return {
            "topology": self.topology.name,
            "job": self.job.name,
            **{what: getattr(self.job, what) for what in of_job},
            "microbatches_per_replica": self.job.microbatch_counts,
            "sequences_per_iteration": None if self.job.model is None else self.job.global_batch,
            "seq_len": None if self.job.model is None else self.job.model.seq_len,
            "notes": [] if self.job.model is None else list(self.job.model.notes),
            "schedule": self.job.schedule_name,
            "checkpointing": self.job.checkpoints,
            "chosen": self.chosen,
            "pinned": self.given,
            "cost_s": self.cost.total_s,
            "data_parallel_s": self.cost.data_parallel_s,
            "pipeline_s": self.cost.pipeline_s,
            **{what: getattr(self, what) for what in (*costs, *searched)},
            "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_gpu": self.tokens_per_s_per_gpu,
            "gpus_in_use": self.gpus_in_use,
            "price_per_billion_tokens": self.price_per_billion_tokens,
            "blocks_per_stage": self.blocks_per_stage,
            "stages": self.stages,
            "pipelines": self.pipelines,
            "rank_map": self.rank_map,
            "idle_devices": [self.topology.names[i] for i in self.idle_devices],
        }

    def _named(self, grid: npt.NDArray[np.int64]) -> list[list[str]]:
        names = self.topology.names  # the property builds a new tuple on each access
        return [[names[d] for d in row] for row in grid]
