"""The error of an iteration in a sentence or three: how large, whom to suspect, and how much that explains."""

from typing import Any, NamedTuple

from dtfm_lab.compare.comparison import Comparison
from dtfm_lab.compare.errors import signed_share
from dtfm_lab.domain.units import format_s

SMALL = 0.02
"""Share of the prediction below which an error without a suspect is not worth a reason."""
HIDDEN = 0.001
"""Share of the iteration below which an effect counts as hidden behind other work."""


class Parts(NamedTuple):
    """The error of an iteration by what causes it, in seconds; they add up to its mean over iterations."""

    messages_s: float
    computation_s: float
    links: tuple[str, ...]
    """The suspected links, worst first."""
    devices: tuple[str, ...]


def parts_of(comparison: Comparison) -> Parts | None:
    """Return what messages and computations make of the error; None where the trace does not hold its schedule."""
    if comparison.blame_missing:
        return None
    table, suspects = comparison.blame.table, comparison.suspects
    computation_s = float(table.loc[table["of"] == "device", "longer_s"].sum())
    links, devices = (tuple(suspects.loc[suspects["of"] == of, "name"]) for of in ("link", "device"))
    return Parts(float(table["longer_s"].sum()) - computation_s, computation_s, links, devices)


def headline(comparison: Comparison) -> str:
    """``Measured 498 ms, 43 ms longer than predicted. Suspect: barbara → katherine, whose messages take ...``"""
    error_s, predicted_s = comparison.error_s, comparison.predicted_iteration_s
    share, begin = comparison.iteration_error, error_sentence(comparison)
    if comparison.blame_missing:
        return f"{begin} Nobody can be suspected: {comparison.blame_missing}"
    suspects = comparison.suspects
    if not len(suspects):
        if abs(share) < SMALL or predicted_s <= 0:
            return f"{begin} No link and no device stands out."
        found = parts_of(comparison)
        assert found is not None
        larger = "computation" if abs(found.computation_s) > abs(found.messages_s) else "messages"
        return f"{begin} Most of it is {larger} everywhere: no link and no device stands out."
    return f"{begin} {_accuse(suspects.iloc[0], len(suspects), error_s)}"


def error_sentence(comparison: Comparison) -> str:
    """``Measured 498 ms, 43 ms longer than predicted (+9.5 %).``"""
    error_s, share = comparison.error_s, comparison.iteration_error
    measured = format_s(comparison.measured.iteration_s)
    if format_s(abs(error_s)) == "0 s" or abs(share) < 5e-4:
        return f"Measured {measured}, as long as predicted."
    how = "longer" if error_s > 0 else "shorter"
    return f"Measured {measured}, {format_s(abs(error_s))} {how} than predicted ({signed_share(share)})."


def _accuse(first: Any, n_suspects: int, error_s: float) -> str:
    name = first["name"].replace("->", "→")
    who = f"Suspect: {name}" if n_suspects == 1 else f"{n_suspects} suspects, first {name}"
    times = f"{first['ratio']:.1f}" if first["ratio"] >= 1.95 else f"{first['ratio']:.2f}"
    own = "messages" if first["of"] == "link" else "computations"
    if first["of"] == "card":
        does = "where messages come in another order than predicted"
    elif first["what"] == "delay":
        does = f"whose {own} begin {'later' if first['longer_s'] > 0 else 'earlier'} than they could"
    elif first["ratio"] != first["ratio"]:
        does = f"whose {own} were predicted to take no time"
    elif first["what"] == "latency":
        does = f"whose latency is {times} times what it was told"
    else:
        told = "they were told" if first["of"] == "link" else "was profiled"
        does = f"whose {own} take {times} times what {told}"
    longer_s = float(first["longer_s"])
    if abs(first["share"]) < HIDDEN:
        return f"{who}, {does}, hidden behind other work."
    if error_s * longer_s > 0 and abs(longer_s) <= 1.05 * abs(error_s):
        return f"{who}, {does}. It explains {format_s(abs(longer_s))} of the {format_s(abs(error_s))}."
    return f"{who}, {does}. By itself that makes {format_s(abs(longer_s))} {'more' if longer_s > 0 else 'less'}."
