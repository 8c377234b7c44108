"""Tools for sources to build their rows: units of published quantities, the row of a simulated plan, networks of hosts,
and models whose blocks have measured seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtfm_lab.costs.efficiency import efficiency_of
from dtfm_lab.domain.job import Job, Layer, LayerKind, ModelSpec
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace, predicted_ends
from dtfm_lab.domain.units import GB, TERA, GiB, format_share
from dtfm_lab.extensions.published.row import Row
from dtfm_lab.extensions.systems.strategy import Budget, Strategy
from dtfm_lab.planning.iteration.structured.candidates import unpriced_plan
from dtfm_lab.planning.iteration.structured.layouts import in_order
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory


@dataclass(frozen=True)
class Prediction:
    """A simulated plan, from which the value of any published quantity can be computed."""

    plan: Plan
    trace: Trace

    @property
    def n_gpus(self) -> int:
        """Number of GPUs in use. A tensor-parallel group counts as several."""
        return sum(self.plan.topology.devices[int(i)].gpus for i in self.plan.placement.devices.flat)

    @property
    def peak_bytes(self) -> float:
        """Peak bytes on the GPU that holds the most."""
        return gpu_peak_bytes(self.plan, self.trace.context.recorded_schedule)

    @property
    def flop_per_s(self) -> float:
        """The model's FLOP/s over all devices. Recomputation does not count."""
        return self.trace.context.plan.flop / self.trace.iteration_s

    @property
    def utilisation(self) -> float:
        """The model's FLOP as a share of the devices' peak: the MFU (Chowdhery et al. 2022, appendix B)."""
        return self.flop_per_s / sum(sum(stage) for stage in self.trace.context.plan.peak_flop_per_s)


def gpu_peak_bytes(plan: Plan, schedule: Schedule | str | None = None) -> float:
    """Return the peak bytes of the GPU that holds the most. The GPUs of a tensor-parallel group hold the same."""
    gpus = [[plan.topology.devices[int(i)].gpus for i in row] for row in plan.placement.devices]
    return float((memory(plan, schedule).peak_bytes / np.array(gpus)).max())


ALLOCATED = 0.94
"""Bytes allocated by torch's allocator, divided by the bytes that it reserves. Source: SimuMax's system configurations
(mem_factor)."""
RESERVED = "94 % of what is reserved is allocated (SimuMax's configurations)"


SECONDS: dict[str, float] = {"s": 1.0, "ms": 1e3}
BYTES: dict[str, float] = {"GiB": 1 / GiB, "GB": 1 / GB, "bytes": 1.0}
SHARES: dict[str, float] = {"": 1.0, "%": 100.0}
Predicted = Callable[[Prediction], float]


def _samples(prediction: Prediction) -> float:
    return prediction.plan.job.global_batch / prediction.trace.iteration_s


def _tokens(prediction: Prediction) -> float:
    return prediction.trace.context.plan.tokens / prediction.trace.iteration_s


def _a_gpu(rate: Predicted, times: float = 1.0) -> Predicted:
    return lambda prediction: times * rate(prediction) / prediction.n_gpus


def _scaled(value: Predicted, units: dict[str, float]) -> dict[str, Predicted]:
    def in_unit(times: float) -> Predicted:
        return lambda prediction: times * value(prediction)

    return {unit: in_unit(times) for unit, times in units.items()}


UNITS: dict[str, dict[str, Predicted]] = {
    "bubble": _scaled(lambda prediction: 1 - prediction.trace.compute_share, SHARES),
    "compute": {"TFLOP/s a GPU": _a_gpu(lambda prediction: prediction.flop_per_s, 1 / TERA)},
    "iteration": _scaled(lambda prediction: prediction.trace.iteration_s, SECONDS),
    "memory": _scaled(lambda prediction: prediction.peak_bytes, BYTES),
    "throughput": {
        "tokens/s": _tokens,
        "tokens/s a GPU": _a_gpu(_tokens),
        "samples/s": _samples,
        "samples/s a GPU": _a_gpu(_samples),
    },
    "utilisation": _scaled(lambda prediction: prediction.utilisation, SHARES),
}
"""Functions that compute a number from a prediction, by quantity and unit. The first unit of a quantity is its
default."""

RATES = ("compute", "throughput", "utilisation")
"""Quantities that fall when an iteration takes longer."""


def shares_of(plan: Plan) -> tuple[str, ...]:
    """Return which shares of the peak a prediction assumes if no efficiency is given, and the measurements that they
    come from."""
    devices = (plan.topology.devices[int(i)] for i in plan.placement.devices.flat)
    of_kind = {(device.gpu, device.gpus): device for device in devices}
    ranked = sorted((efficiency_of(plan.job, device) for device in of_kind.values()), reverse=True)
    return tuple(dict.fromkeys(f"{format_share(share, 0)} of the peak: {source}" for share, _, source in ranked))


def interval_of(quantity: str, predicted: float, trace: Trace) -> tuple[float, float] | None:
    """Return the range that should hold the measured number in 9 of 10 cases, from the trace's own interval.

    None if the quantity is neither ``iteration`` nor in ``RATES``, or if nothing states how certain the computations
    are.
    """
    if quantity != "iteration" and quantity not in RATES:
        return None  # before the ends are computed, which takes a tenth of a simulation
    if (ends := predicted_ends(trace, 1.0)) is None:
        return None
    low, high = ends
    if quantity == "iteration":
        return predicted * low, predicted * high
    return predicted / high, predicted / low  # rates fall when times rise, so the ends change places


def simulated_row(
    plan: Plan,
    trace: Trace | None = None,
    *,
    value: Predicted | None = None,
    assumptions: tuple[str, ...] = (),
    **said: Any,
) -> Row:
    """Return the row of a simulated plan, with its interval and the assumed share of the peak.

    ``trace`` is the plan's simulation, if several rows share one. By default the plan is simulated here. ``value``
    computes the number from the prediction. By default it is the one for the row's quantity and unit. ``said`` are the
    remaining fields of the row.
    """
    trace, quantity = trace or simulate(plan), said["quantity"]
    predicted = (value or UNITS[quantity][said["unit"]])(Prediction(plan, trace))
    # No speed enters a peak of memory.
    shares = () if quantity == "memory" else shares_of(plan)
    interval = interval_of(quantity, predicted, trace)
    return Row(predicted=predicted, interval=interval, assumptions=(*assumptions, *shares), **said)


PER_HOST = 8
INSIDE_S = 5e-6
"""Latency in seconds inside a host. A guess, which does not matter if messages are large or hidden."""
BETWEEN_S = 10e-6
"""Latency in seconds between two hosts. Also a guess."""


def hosts_of(
    n: int, gpu: str, *, inside_bytes_per_s: float, between_bytes_per_s: float, per_host: int = PER_HOST
) -> Topology:
    """Return a network of n GPUs in hosts of ``per_host``. ``inside_bytes_per_s`` is for each pair of GPUs in a host.
    ``between_bytes_per_s`` is for a whole host, whose GPUs share it."""
    host = np.arange(n) // per_host
    same = host[:, None] == host[None, :]
    return Topology.from_matrices(
        latency_s=np.where(same, INSIDE_S, BETWEEN_S),
        bandwidth_bytes_per_s=np.where(same, inside_bytes_per_s, between_bytes_per_s),
        hosts=[f"host-{i}" for i in host],
        gpu=gpu,
        name=f"{n} {gpu}",
    )


def measured_model(name: str, parameters: Sequence[int], output_elements: int = 1) -> ModelSpec:
    """Return a model of blocks with these numbers of parameters. Each block passes on ``output_elements`` numbers per
    sequence.

    The model has no FLOP, so it can only be used with measured seconds.
    """
    # No FLOP: such a model is only used with measured seconds.
    blocks = tuple(
        Layer(kind=LayerKind.BLOCK, parameters=count, forward_flop=0.0, output_elements=output_elements)
        for count in parameters
    )
    return ModelSpec(
        name=name,
        layers=blocks,
        d_model=output_elements,
        n_heads=1,
        seq_len=1,
        vocab_size=1,
        tied=False,
        family="measured",
    )


def listed_plan(topology: Topology, job: Job) -> Plan:
    """Return the plan that gives ranks to devices as they are listed, replicas before stages. Its communication cost is
    not computed."""
    grouped = topology.grouped(job.group_gpus)
    return unpriced_plan(grouped, job, in_order(job, np.arange(len(grouped)), "dp-pp"))


def only_plan(strategy: Strategy, topology: Topology, job: Job) -> Plan:
    """Return the only plan of a system whose choices are all fixed. Its communication cost is not computed."""
    # Unpacking fails if the system has more than one branch, so more than one choice.
    (branch,) = strategy.branches(topology, job, Budget())
    (plan,) = [branch] if isinstance(branch, Plan) else branch.plans()
    return plan
