"""What the commands print about traces and comparisons: one JSON object, or lines for people."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from pandas import DataFrame

from dtfm_lab import files
from dtfm_lab.cli.terminal import out, print_json, print_rows, print_table
from dtfm_lab.compare import Comparison, Refit
from dtfm_lab.compare.refit import in_units
from dtfm_lab.domain.trace import BY_MODEL, CAUSES, Trace
from dtfm_lab.domain.units import counted, format_range, format_s, format_share, plain_rows

PIECES = 3
"""Number of links, devices and other pieces of the critical path that are named, the largest first."""
SUSPECTS_SHOWN = 8
LINKS_SHOWN = 12
"""Maximum number of links, and of refitted values, that a terminal shows. --json has all of them."""
FITTED = ("drawn", "fitted", "low", "high")
THROUGHPUT = {
    "tokens_per_s": "{:,.0f} {counted}/s",
    "mfu": "{} of the devices' peak",
    "pflops": "{:.4g} PFLOPS",
    "price_per_iteration": "${:.4g} an iteration",
    "price_per_million_tokens": "${:.4g} a million {counted}",
}
SAME_NAME = (
    *("source", "clock", "schedule", "links", "queueing", "synchronise_every", "late_messages", "overruns"),
    *("time_scale", "stretched", "unigram_entropy", "stand_in", "runs_on", "notes"),
)
"""Fields of the context that a trace's summary copies unchanged."""


def report_trace(trace: Trace, output: str | None, as_json: bool) -> None:
    if output is not None:
        files.save_trace(trace, output)
    if as_json:
        return print_json(trace_summary(trace))
    print_trace(trace)


def trace_summary(trace: Trace) -> dict[str, Any]:
    """Return what ``--json`` prints about a trace."""
    context = trace.context
    summary = {name: getattr(context, name) for name in SAME_NAME} | {
        "synchronisation": context.plan.synchronisation,
        "iterations": trace.n_iterations,
        "iteration_s": trace.iteration_s,
        "interval_s": interval_of(trace),
        "basis": context.basis._asdict() if context.basis.word else None,
        "iteration_ends_s": trace.iteration_ends_s.tolist(),
        "compute_share": trace.compute_share,
        **trace.metrics,
        "rows": len(trace),
        "losses": list(context.losses),
        "held_out": [list(point) for point in context.held_out],
        "faults": [fault._asdict() for fault in context.faults],
        "rehearsed": None if context.rehearsed is None else context.rehearsed._asdict(),
    }
    if trace.after is not None:
        summary["bubble"] = {"busy_s": float(trace.bubble["busy_s"].mean()), **_idle_seconds(trace)}
        summary["critical_path"] = plain_rows(trace.critical_summary())
    return summary


def interval_of(trace: Trace) -> list[float] | None:
    """Return both ends, in seconds, of an iteration's 90 % interval, for JSON. None if no spread is stated."""
    low_s, high_s = trace.interval()
    return [low_s, high_s] if math.isfinite(high_s) else None


def worth_of(trace: Trace) -> str:
    """Return what a trace's iteration time is based on, and its interval: ``modelled; with 90 % confidence ...``."""
    what = "a measured" if trace.context.source == "simulated" else "the median"
    between = format_range(*trace.interval())
    ends = f"with 90 % confidence {what} iteration lies from {between}" if between else ""
    return "; ".join(filter(None, [trace.context.basis.sentence, ends]))


def _idle_seconds(trace: Trace) -> dict[str, float]:
    """Return idle seconds by cause, averaged over devices."""
    columns = [f"{cause}_s" for cause in CAUSES]
    return {column: float(trace.bubble[column].mean()) for column in columns}


def print_trace(trace: Trace) -> None:
    """Print a trace in a few lines: duration, throughput, idle time, critical path, and the losses of a real run."""
    context = trace.context
    out.print(
        f"{context.source} {context.schedule}, {context.clock} clock, "
        f"{f'messages {BY_MODEL}' if context.links_by_model else f'links {context.links}'}: iteration "
        f"{format_s(trace.iteration_s)}, devices compute {format_share(trace.compute_share)} of the time, "
        f"{counted(len(trace), 'row')}"
    )
    if worth := worth_of(trace):
        out.print(worth)
    report: dict[str, Any] = {what: trace.metrics[what] for what in THROUGHPUT}
    report["mfu"] = None if report["mfu"] is None else format_share(report["mfu"])
    unit = {"counted": context.plan.counted}
    known = [text.format(report[what], **unit) for what, text in THROUGHPUT.items() if report[what] is not None]
    if known:
        out.print(", ".join(known))
    if trace.after is not None and trace.iteration_s > 0:
        idle = {cause.removesuffix("_s"): s for cause, s in _idle_seconds(trace).items() if s > 0}
        whole_s = float(trace.bubble["iteration_s"].mean())
        parts = [f"{cause} {format_share(s / whole_s)}" for cause, s in sorted(idle.items(), key=lambda item: -item[1])]
        out.print(f"idle {format_share(sum(idle.values()) / whole_s)}" + (": " if parts else "") + ", ".join(parts))
        path = trace.critical_summary()
        pieces = path[path["by"] != "what"].nlargest(PIECES, "seconds")
        named = [f"{p['name']} {format_s(p['seconds'])} ({format_share(p['share'])})" for p in plain_rows(pieces)]
        out.print(f"largest pieces of the critical path: {', '.join(named)}")
    if context.losses:
        out.print(
            f"{counted(trace.n_iterations, 'iteration')}, loss {context.losses[0]:.4f} -> {context.losses[-1]:.4f}, "
            f"{context.late_messages} late messages, {context.overruns} overruns"
        )
    for note in context.notes:
        out.print(f"note: {note}")


def report_comparison(comparison: Comparison, refitted: Refit | None, as_json: bool) -> None:
    """Print suspects and drift, then errors by iteration, kind, stage and link, then the refitted values that
    are out of their 95 % intervals."""
    if as_json:
        fitted = {} if refitted is None else {"refit": refitted.summary()}
        return print_json(comparison.summary() | fitted)
    context = comparison.measured.context
    out.print(
        f"predicted {format_s(comparison.predicted_iteration_s)}, measured {format_s(comparison.measured.iteration_s)} "
        f"({context.clock} clock, {context.schedule}): error {comparison.error_text}; "
        f"{context.late_messages} late messages, {context.overruns} overruns"
    )
    # Sorted already, the largest share of the error first.
    suspects = comparison.suspects["sentence"].tolist()
    more = [f"and {len(suspects) - SUSPECTS_SHOWN} more suspects"] if len(suspects) > SUSPECTS_SHOWN else []
    lines = (comparison.verdict, *suspects[:SUSPECTS_SHOWN], *more, comparison.drift.sentence)
    inside = [comparison.inside_sentence] if comparison.inside_sentence else []
    for line in (f"measured with {context.provenance}", *lines, *inside):
        out.print(line)
    # By size, because an arrival may be too early as well as too late; stable, so that ties keep their order.
    worst = comparison.links["arrival_error_s"].abs().sort_values(ascending=False, kind="stable").index
    by_link = comparison.links.loc[worst[:LINKS_SHOWN]].drop(columns="seconds_by")
    by_model = {"measured_s": BY_MODEL} if context.links_by_model else {}
    for title, frame in (
        ("iteration", comparison.iterations),
        ("kind", comparison.kinds),
        ("stage", comparison.stages),
        (f"link (at most {LINKS_SHOWN}, the worst arrivals first)", by_link),
    ):
        print_table(frame.rename_axis(title).reset_index(), by_model if frame is by_link else {})
    if refitted is not None:
        off, n = refitted.off, len(refitted.table)
        out.print(f"{refitted.sentence}; {len(off)} of {counted(n, 'value')} out of their 95 % intervals")
        if len(off):
            print_rows((f"refitted (at most {LINKS_SHOWN}, the furthest first)", "what", *FITTED), _refitted(off))


def _refitted(off: DataFrame) -> Iterator[list[str]]:
    """Yield one row, with units, for each of the first ``LINKS_SHOWN`` rows of ``off`` (``Refit.off``, the most
    different first)."""
    rows: Iterable[Any] = off.head(LINKS_SHOWN).itertuples(index=False)
    for row in rows:
        what = row.what.split("_")[0] if row.of == "link" else f"{row.kind} of stage {row.stage}"
        yield [row.name, what, *(in_units(row.what, getattr(row, column)) for column in FITTED)]
