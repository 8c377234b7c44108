"""The one definition of a prediction's error: measured minus predicted, and its share of the prediction."""

from dtfm_lab.domain.units import format_s

ROUNDING = 5e-4
"""Share of a prediction below which an error is written as none."""


def share_of(error_s: float, predicted_s: float) -> float:
    """The error as a share of the prediction: +0.03 is three per cent longer than predicted; 0 where that is 0."""
    return error_s / predicted_s if predicted_s > 0 else 0.0


def format_error(error_s: float, predicted_s: float) -> str:
    """``+43 ms (+9.5 %)``; ``0 s (0.0 %)`` for what is only rounding; without a share where 0 was predicted."""
    if predicted_s <= 0:
        return signed_s(error_s)
    if abs(error_s) < ROUNDING * predicted_s:
        return "0 s (0.0 %)"
    return f"{signed_s(error_s)} ({signed_share(share_of(error_s, predicted_s))})"


def signed_s(seconds: float) -> str:
    """``+0.4 s``, ``−12 ms``, ``0 s``."""
    text = format_s(abs(seconds))
    return text if text == "0 s" else f"{_sign(seconds)}{text}"


def signed_share(share: float) -> str:
    """``+1.2 %``, ``−14.6 %``, ``0.0 %``."""
    return "0.0 %" if abs(share) < ROUNDING else f"{_sign(share)}{abs(share):.1%}".replace("%", " %")


def _sign(value: float) -> str:
    return "\u2212" if value < 0 else "+"
