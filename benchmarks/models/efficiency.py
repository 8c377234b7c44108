"""Fit the constants of ``simulation/efficiency.py`` on some published measurements and test them on others.

A100: ``most`` and ``half_depth`` are fitted to Megatron-LM's rows of SC'21, the mean relative error made least, and
tested on vTrain's and Zero Bubble's. H100 and B200: ``half_depth`` is the A100's; ``most`` of each is the median of
what the other's rows ask for, so that none is tested on a row of its own. A fused attention's two constants are fitted
to speeds of kernels that were published by themselves (``published/data/attention_kernels.csv``), from 4,096 tokens on:
what is shorter was measured with the time of its launch. It prints the fits beside the constants that
the lab has, and of every source the median error, how many rows are within 20 %, and how far rows of one model are off
when one of them calibrates the others (``lab.published.calibrate``). It takes some minutes.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, least_squares, minimize

from dtfm_lab.costs import efficiency
from dtfm_lab.domain.network import Device
from dtfm_lab.domain.network.device import HARDWARE
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import TERA
from dtfm_lab.extensions.published.row import numbers
from dtfm_lab.extensions.published.systems import megatron, simumax, torchtitan, vtrain, zero_bubble
from dtfm_lab.simulation.simulate import iteration_seconds

TRIED = 0.4, 0.6
"""Shares at which a row is simulated: its seconds are a line in one over the share."""


class Measured(NamedTuple):
    """A published measurement as seconds: those that a share divides, and those that it does not."""

    source: str
    model: str
    plan: Plan
    seconds: float
    slope_s: float
    fixed_s: float

    @classmethod
    def of(cls, source: str, model: str, plan: Plan, seconds: float) -> "Measured":
        (x0, s0), (x1, s1) = ((1 / one, iteration_seconds(plan, efficiency=one)) for one in TRIED)
        slope_s = (s1 - s0) / (x1 - x0)
        return cls(source, model, plan, seconds, slope_s, s0 - slope_s * x0)

    @property
    def device(self) -> Device:
        return self.plan.topology.devices[int(self.plan.placement.devices.flat[0])]

    def ratio(self, factor: float = 1.0) -> float:
        """Predicted over measured seconds, the lab's share times a factor."""
        share = efficiency.efficiency_of(self.plan.job, self.device).share * factor
        return (self.fixed_s + self.slope_s / share) / self.seconds

    @property
    def own_factor(self) -> float:
        return float(brentq(lambda factor: self.ratio(factor) - 1, 0.1, 10))


def rows() -> Iterator[Measured]:
    """All measured rows whose devices have a source in the table."""
    for one in megatron.measured("Megatron-LM"):
        seconds = one.counted_flop / one["gpus"] / (one.published * 1e12)
        yield Measured.of("Megatron-LM", one.line["model"], one.plan(), seconds)
    for line in numbers("vtrain_multi.csv"):
        if int(line["tensor_parallel"]) <= 8:
            yield Measured.of("vTrain", line["model"], vtrain.plan_of(line), float(line["iteration_ms"]) / 1000)
    profile = numbers("zero_bubble_profile.csv")
    profiled_s = {(line["model"], line["microbatches"]): float(line["message_ms"]) / 1000 for line in profile}
    for line in numbers("zero_bubble_table5.csv"):
        message_s = profiled_s[line["model"], line["microbatches"]]
        plan = zero_bubble.plan_of(
            line["model"],
            line["schedule"],
            int(line["microbatches"]),
            message_s=message_s,
            memory_traffic=True,
            transport="blocking",
        )
        seconds = plan.job.global_batch / plan.job.n_stages / float(line["samples_per_gpu_per_s"])
        yield Measured.of("Zero Bubble", line["model"], plan, seconds)
    for line in numbers("torchtitan.csv"):
        n, compiled = int(line["gpus"]), line["compiled"] == "yes"
        plan = torchtitan.plan_of(n, compiled=compiled)
        model = "compiled" if compiled else "eager"
        yield Measured.of("torchtitan", model, plan, plan.job.tokens / n / float(line["tokens_per_s"]))
    for line in numbers("simumax_b200.csv"):
        if all(line[name] == "1" for name in ("tensor_parallel", "context_parallel", "expert_parallel")):
            yield Measured.of("SimuMax", line["model"], simumax.plan_of(line), float(line["measured_ms"]) / 1000)


def with_constants(gpu: str, **constants: float) -> None:
    """Set constants of a GPU, for all that follows."""
    efficiency.PRODUCTS[gpu] = efficiency.PRODUCTS[gpu]._replace(**constants)  # type: ignore[arg-type]


def fit_a100(some: list[Measured]) -> tuple[float, float]:
    """``most`` and ``half_depth``."""

    def error(point: np.ndarray) -> float:
        with_constants("A100", most=float(point[0]), half_depth=math.exp(point[1]))
        return float(np.mean([abs(math.log(row.ratio())) for row in some]))

    found = min(
        (minimize(error, [most, math.log(depth)], method="Nelder-Mead") for most in (0.7, 0.8) for depth in (150, 600)),
        key=lambda one: one.fun,
    )
    return float(found.x[0]), math.exp(found.x[1])


def kernels(gpu: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of a sequence, and the share of the peak that the published kernel reaches over both passes."""
    lines = [line for line in numbers("attention_kernels.csv") if line["gpu"] == gpu and int(line["tokens"]) >= 4096]
    speeds = [(float(line["forward_tflop_per_s"]), float(line["backward_tflop_per_s"])) for line in lines]
    peak = HARDWARE[gpu].peak_of("bf16") / TERA
    return np.array([int(line["tokens"]) for line in lines]), np.array([7 / (2 / f + 5 / b) / peak for f, b in speeds])


def fit_kernels(gpu: str) -> tuple[float, float]:
    """``most`` and ``half_length`` of a GPU's fused attention, the squares of relative errors made least."""
    tokens, shares = kernels(gpu)
    found = least_squares(lambda point: np.log(point[0] * tokens / (tokens + point[1]) / shares), [0.5, 500.0])
    return float(found.x[0]), float(found.x[1])


def main() -> None:
    for gpu in ("A100", "H200", "B200"):
        most, half_length = fit_kernels(gpu)
        whole = most / efficiency.UNMASKED
        print(f"{gpu}, cuDNN's attention: most {most:.3f}, half_length {half_length:.0f}; whole squares at {whole:.3f}")
    measured = list(rows())
    of = {
        source: [row for row in measured if row.source == source]
        for source in dict.fromkeys(r.source for r in measured)
    }
    kept = dict(efficiency.PRODUCTS)
    most, depth = fit_a100(of["Megatron-LM"])
    print(f"A100: most {most:.3f}, half_depth {depth:.0f}; the lab's {kept['A100'][1:3]}")
    for gpu, other, source in (("H100", "B200", "SimuMax"), ("B200", "H100", "torchtitan")):
        efficiency.PRODUCTS.update(kept)
        with_constants(other, half_depth=depth)
        factor = math.exp(np.median([math.log(row.own_factor) for row in of[source]]))
        print(f"{gpu}, from {source}: most {factor * kept[other].most:.3f}; the lab's {kept[gpu][1:3]}")
    efficiency.PRODUCTS.update(kept)
    print("with the lab's constants:")
    for source, some in of.items():
        off = np.array([row.ratio() for row in some])
        pairs = [two.ratio(one.own_factor) for one in some for two in some if one is not two and one.model == two.model]
        spread = float(np.quantile(np.abs(np.log(off)), 0.9)) / 1.645
        calibrated = f"{np.median(np.abs(np.array(pairs) - 1)):.1%}" if pairs else "no two"
        print(
            f"  {source:12} {len(some):3} rows, median {np.median(np.abs(off - 1)):.1%}, within 20 % "
            f"{np.mean(np.abs(off - 1) < 0.2):.0%}, bias {np.median(off):.3f}, spread {spread:.3f}, calibrated by "
            f"one row of the model {calibrated}"
        )


if __name__ == "__main__":
    main()
