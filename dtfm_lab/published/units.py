"""Units of published quantities, and how the numbers of a prediction are said in them."""

from collections.abc import Callable
from dataclasses import dataclass

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import GB, TERA, GiB
from dtfm_lab.simulation.memory import memory


@dataclass(frozen=True)
class Prediction:
    """A simulated plan, of which a published quantity is a number."""

    plan: Plan
    trace: Trace

    @property
    def n_devices(self) -> int:
        """Devices that serve."""
        return int(self.plan.placement.devices.size)

    @property
    def peak_bytes(self) -> float:
        """Peak of the device that holds most."""
        schedule: Schedule = self.trace.context.recorded_schedule
        return float(memory(self.plan, schedule).peak_bytes.max())

    @property
    def flop_per_s(self) -> float:
        """The model's FLOP a second of all devices, nothing counted twice."""
        return self.trace.context.flop / self.trace.iteration_s

    @property
    def utilisation(self) -> float:
        """Share of the peak of the devices that the model's FLOP are (Chowdhery et al. 2022, appendix B)."""
        return self.flop_per_s / sum(sum(stage) for stage in self.trace.context.peak_flop_per_s)


SECONDS: dict[str, float] = {"s": 1.0, "ms": 1e3}
BYTES: dict[str, float] = {"GiB": 1 / GiB, "GB": 1 / GB, "bytes": 1.0}
SHARES: dict[str, float] = {"": 1.0, "%": 100.0}
Predicted = Callable[[Prediction], float]


def _samples(prediction: Prediction) -> float:
    return prediction.plan.job.global_batch / prediction.trace.iteration_s


def _tokens(prediction: Prediction) -> float:
    return prediction.trace.context.tokens / prediction.trace.iteration_s


def _a_gpu(rate: Predicted, times: float = 1.0) -> Predicted:
    return lambda prediction: times * rate(prediction) / prediction.n_devices


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
"""By quantity and unit: the number of a prediction. The first unit of a quantity is its default."""
