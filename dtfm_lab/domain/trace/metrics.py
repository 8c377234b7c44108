"""Throughput, utilisation and price of an iteration, from its seconds."""

from __future__ import annotations

from dtfm_lab.domain.trace.run_context import RunContext

PETA = 1e15
AS_DRAWN = ("model", "paced")
"""Clocks that count seconds of the drawn devices, to which peaks and prices refer."""


def metrics(context: RunContext, iteration_s: float) -> dict[str, float | None]:
    """Throughput, utilisation and price; None where a number is unknown or the iteration takes no time.

    ``tokens_per_s``; ``pflops``, the model's FLOP per second in units of 1e15, nothing counted twice;
    ``mfu``, the same as a share of the peak of all devices of the plan (Chowdhery et al. 2022, appendix B);
    ``price_per_iteration`` and ``price_per_million_tokens`` of all devices of the plan, idle ones of the
    network not counted, unknown where one of them has no price. Utilisation and prices are unknown where
    the seconds are those of the machine that ran it and not of the drawn devices (clocks ``virtual`` and
    ``real``); so is everything where a proxy model was trained in place of the job's.
    """
    peak_flop_per_s = _sum_over_devices(context, context.peak_flop_per_s)
    price_per_hour = _sum_over_devices(context, context.price_per_hour)
    price = None if price_per_hour is None else price_per_hour * iteration_s / 3600
    known = not context.stand_in or context.clock in AS_DRAWN
    flop, tokens = (context.flop or None, context.tokens or None) if known else (None, None)
    return {
        "tokens_per_s": _ratio(tokens, iteration_s),
        "pflops": _ratio(flop, iteration_s * PETA),
        "mfu": None if peak_flop_per_s is None else _ratio(flop, iteration_s * peak_flop_per_s),
        "price_per_iteration": price,
        "price_per_million_tokens": None if price is None or tokens is None else price / tokens * 1e6,
    }


def _sum_over_devices(context: RunContext, of_device: tuple[tuple[float, ...], ...]) -> float | None:
    known = [value for group in of_device for value in group]
    if context.clock not in AS_DRAWN or not known or min(known) <= 0:
        return None
    return sum(known)


def _ratio(value: float | None, by: float) -> float | None:
    return value / by if value is not None and by > 0 else None
