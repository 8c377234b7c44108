"""What the commands print about traces and what is simulated: one JSON object, or lines for a person."""

from __future__ import annotations

from typing import Any

from pandas import DataFrame

from dtfm_lab import files
from dtfm_lab.cli.terminal import out, print_json, print_table
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import CAUSES, Trace
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning.explain.sentences import counted
from dtfm_lab.planning.explain.tables import plain_rows
from dtfm_lab.simulation.memory import MemoryReport
from dtfm_lab.simulation.schedules import peak_activations
from dtfm_lab.simulation.sensitivity import LEAST_REPORTED

PIECES = 3
"""of the critical path that are named"""
GAINS_SHOWN = 12
"""in a terminal; --json has all of them"""


def report_trace(trace: Trace, output: str | None, as_json: bool) -> None:
    if output is not None:
        files.save_trace(trace, output)
    if as_json:
        return print_json(_summary(trace))
    _print_trace(trace)


def report_simulation(trace: Trace, held: MemoryReport, advice: str, as_json: bool) -> None:
    """Who lacks memory, an iteration, what it comes to and why it takes so long; or what the fullest device holds."""
    if as_json:
        return print_json(_summary(trace) | {"memory": _memory(held) | {"advice": advice}})
    if not held.fits:
        out.print(f"out of memory: {advice or held.sentence}")
    _print_trace(trace)
    if held.fits:
        out.print(f"memory: {held.sentence}")


def _summary(trace: Trace) -> dict[str, Any]:
    context = trace.context
    summary = {
        "source": context.source,
        "clock": context.clock,
        "schedule": context.schedule,
        "links": context.links,
        "queueing": context.queueing,
        "synchronisation": context.synchronisation,
        "synchronise_every": context.synchronise_every,
        "iterations": trace.n_iterations,
        "iteration_s": trace.iteration_s,
        "iteration_ends_s": trace.iteration_ends_s.tolist(),
        "compute_share": trace.compute_share,
        **trace.metrics,
        "rows": len(trace),
        "losses": list(context.losses),
        "late_messages": context.late_messages,
        "overruns": context.overruns,
        "time_scale": context.time_scale,
        "stretched": context.stretched,
        "held_out": [list(point) for point in context.held_out],
        "unigram_entropy": context.unigram_entropy,
        "faults": [fault._asdict() for fault in context.faults],
        "rehearsed": None if context.rehearsed is None else context.rehearsed._asdict(),
        "stand_in": context.stand_in,
        "runs_on": context.runs_on,
    }
    if trace.after is not None:
        summary["bubble"] = {"busy_s": float(trace.bubble["busy_s"].mean()), **_idle(trace)}
        summary["critical_path"] = plain_rows(trace.critical_summary())
    return summary


def _idle(trace: Trace) -> dict[str, float]:
    """Seconds by cause, mean over devices."""
    columns = [f"{cause}_s" for cause in CAUSES]
    return {column: float(trace.bubble[column].mean()) for column in columns}


def _memory(held: MemoryReport) -> dict[str, Any]:
    at = held.worst
    return {
        "fits": held.fits,
        "devices_over": int((held.over_bytes > 0).sum()),
        "worst_device": held.devices[at[0]][at[1]],
        "peak_bytes": int(held.peak_bytes[at]),
        "limit_bytes": int(held.limit_bytes[at]),
        "over_bytes": int(held.over_bytes[at]),
        "sentence": held.sentence,
    }


def _print_trace(trace: Trace) -> None:
    context = trace.context
    out.print(
        f"{context.source} {context.schedule}, {context.clock} clock, links {context.links}: iteration "
        f"{format_s(trace.iteration_s)}, devices compute {trace.compute_share:.1%} of the time, "
        f"{len(trace)} rows"
    )
    if told := _throughput(trace.metrics):
        out.print(told)
    if trace.after is not None and trace.iteration_s > 0:
        idle = {cause.removesuffix("_s"): s for cause, s in _idle(trace).items() if s > 0}
        whole_s = float(trace.bubble["iteration_s"].mean())
        parts = [f"{cause} {s / whole_s:.1%}" for cause, s in sorted(idle.items(), key=lambda item: -item[1])]
        out.print(f"idle {sum(idle.values()) / whole_s:.1%}" + (": " if parts else "") + ", ".join(parts))
        path = trace.critical_summary()
        pieces = path[path["by"] != "what"].nlargest(PIECES, "seconds")
        named = [f"{p.name} {format_s(p.seconds)} ({p.share:.1%})" for p in _records(pieces)]
        out.print(f"critical path, its largest pieces: {', '.join(named)}")
    if context.losses:
        out.print(
            f"{trace.n_iterations} iterations, loss {context.losses[0]:.4f} -> {context.losses[-1]:.4f}, "
            f"{context.late_messages} late messages, {context.overruns} overruns"
        )


def _records(frame: DataFrame) -> list[Any]:
    return list(frame.itertuples(index=False))


def _throughput(metrics: dict[str, float | None]) -> str:
    """What is known of it, empty where nothing is."""
    told = []
    for what, text in (
        ("tokens_per_s", "{:,.0f} tokens/s"),
        ("mfu", "{:.1%} of the devices' peak"),
        ("pflops", "{:.4g} PFLOPS"),
        ("price_per_iteration", "${:.4g} an iteration"),
        ("price_per_million_tokens", "${:.4g} a million tokens"),
    ):
        if (value := metrics[what]) is not None:
            told.append(text.format(value))
    return ", ".join(told)


def report_sweep(table: DataFrame, settings: list[str], as_json: bool) -> None:
    """One row a point; what cannot be, and why, below."""
    if as_json:
        return print_json({"settings": settings, "points": plain_rows(table)})
    possible = table[table["error"] == ""]
    priced = ["price_per_million_tokens"] if possible["price_per_million_tokens"].notna().any() else []
    if len(possible):
        print_table(possible[[*settings, "iteration_s", "tokens_per_s", "mfu", "peak_memory_bytes", "fits", *priced]])
    for error, rows in table[table["error"] != ""].groupby("error", sort=False):
        first = ", ".join(f"{what} {rows[what].iloc[0]}" for what in settings)
        such = ", such as" if len(rows) > 1 else ":"
        out.print(f"{counted(len(rows), 'point')} cannot be{such} {first}: {error}")


def report_sensitivity(table: DataFrame, as_json: bool) -> None:
    """A sentence each, the greatest gain first; what would change nothing is counted."""
    if as_json:
        return print_json({"gains": plain_rows(table)})
    if not len(table):
        out.print("nothing to improve: no such link or device serves")
    changes = table["change"].abs() >= LEAST_REPORTED
    for sentence in table["sentence"][changes].head(GAINS_SHOWN):
        out.print(sentence)
    if (more := int(changes.sum()) - GAINS_SHOWN) > 0:
        out.print(f"and {more} more that bring no more than the last")
    if none := int((~changes).sum()):
        out.print(f"{none} of {counted(len(table), 'improvement')} would change nothing")


def report_schedule(schedule: Schedule, as_json: bool) -> None:
    """A line a device, its passes in order."""
    held = peak_activations(schedule)
    if as_json:
        return print_json(
            {
                "name": schedule.name,
                "n_devices": schedule.n_devices,
                "n_stages": schedule.n_stages,
                "n_microbatches": schedule.n_microbatches,
                "orders": list(schedule.orders),
                "peak_activations": list(held),
            }
        )
    for position, (order, most) in enumerate(zip(schedule.orders, held, strict=True)):
        out.print(f"device {position}, at most {most} held: {order}")
