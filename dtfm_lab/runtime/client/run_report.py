"""Descriptions of a run for the terminal, the notebook and the Lab. All are plain text, except ``html``."""

from html import escape
from typing import NamedTuple

from dtfm_lab.domain.trace import Fault
from dtfm_lab.domain.units import counted, format_s, format_share
from dtfm_lab.runtime.client.record import RunRecord
from dtfm_lab.runtime.protocol.run_options import RunSpec


class DeviceRow(NamedTuple):
    """One device of the run, as tables show it."""

    device: str
    stages: str
    replica: int
    condition: str
    """What has happened to it: lost, gone (it left permanently), back, paused or 2 x slower; empty if nothing."""
    busy: float | None
    """Share of the last complete iteration that it spent computing; None before there is one."""


def device_rows(run: RunRecord) -> list[DeviceRow]:
    """Return the devices by rank: pipeline by pipeline, in stage order."""
    spec, busy = run.spec, run.busy()
    rows = []
    for position, replica in spec.workers:
        name = spec.device_name(position, replica)
        stages = ", ".join(map(str, spec.built.stages_of(position)))
        rows.append(DeviceRow(name, stages, replica, run.conditions.get(name, ""), busy.get(name)))
    return rows


def describe_progress(run: RunRecord) -> str:
    """Describe how far the run is: ``3 of 8 iterations done``, ``stopped after 3 of 8 iterations``."""
    whole = f"{len(run.losses)} of {counted(run.spec.iterations, 'iteration')}"
    before = f", {run.spec.first_iteration} before them" if run.spec.first_iteration else ""
    begins = "starting" if run.n_ready else "loading torch"
    if run.status == "starting" and run.waits_for:
        return f"waiting: this machine runs {run.waits_for} at once"
    return {
        "starting": f"{begins}, {run.n_ready} of {counted(len(run.spec.workers), 'worker')}",
        "profiling": describe_profiling(run),
        "running": f"{whole} done{before}",
        "done": f"{whole} done{before}",
        "stopped": f"stopped after {whole}{before}",
        "failed": f"failed after {whole}{before}",
    }[run.status]


def describe_profiling(run: RunRecord) -> str:
    """Return how far the calibration is: ``profiling 3 of 8``. The total may still change until the last iteration."""
    done, total = run.profiled
    return f"profiling {min(done + 1, max(1, total))} of {max(1, total)}"


def describe_lateness(run: RunRecord) -> str:
    """Say how many messages and computations were late; empty if none."""
    if not (run.late_messages or run.overruns):
        return ""
    return f"{run.late_messages} late messages, {run.overruns} overruns"


def describe_pace(run: RunRecord) -> str:
    """Say how many times slower than the devices the paced clock runs; empty for other clocks and before the
    calibration has ended."""
    if run.spec.clock != "paced" or not run.profile:
        return ""
    text = f"slowed down {run.time_scale:.3g} times"
    if run.stretched:
        text += f"; {run.stretched} computation times stretched, because the specified devices outrun this machine"
    return text


def describe_checkpoint(run: RunRecord) -> str:
    """Name the newest checkpoint and its folder; empty without a checkpoint."""
    if not run.checkpoints:
        return ""
    done, folder = run.checkpoints[-1]
    return f"checkpoint after {counted(done, 'iteration')} in {folder}"


def describe_losses(run: RunRecord) -> str:
    """Describe the last losses and the unigram entropy, which no model without context beats; empty before the first
    loss."""
    parts = [f"loss {run.losses[-1]:.4f}"] if run.losses else []
    if run.held_out:
        parts.append(f"held-out loss {run.held_out[-1][1]:.4f}")
    if run.unigram_entropy is not None:
        parts.append(f"unigram entropy {run.unigram_entropy:.4f}")
    return ", ".join(parts)


def describe_fault(lost: Fault) -> str:
    """Describe a lost worker: ``Tokyo-3 was killed by SIGKILL in iteration 3; its state came from Tokyo-7; 0.6 s``."""
    return (
        f"{lost.device} {lost.how} in iteration {lost.iteration}; its state came from {lost.state_from}; "
        f"{format_s(lost.lost_s)}"
    )


def describe_recovery(lost: Fault) -> str:
    """Describe a recovery: ``recovered in 0.6 s, state from Tokyo-7``."""
    return f"recovered in {format_s(lost.lost_s)}, state from {lost.state_from}"


def generated_text(run: RunRecord) -> tuple[str, str]:
    """Return the prompt and the text that the trained model generated, with � for bytes that are not text."""
    return _printable(run.prompt), _printable(run.text or "")


def describe_reductions(spec: RunSpec) -> str:
    """Say which part of the plan runs, and what replaces its model and links; empty if everything runs as planned."""
    parts = []
    if spec.subplan is not None:
        parts.append(f"rehearsal of a part: {spec.subplan.sentence}")
    if spec.stand_in is not None:
        model = spec.plan.job.modelled().name
        parts.append(f"model {spec.stand_in.name} is trained instead of {model}, messages are as long as the job's")
    if spec.emulated is not None:
        parts.append(f"the links emulated are those of {spec.emulated.name}")
    return "; ".join(parts)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def html(run: RunRecord) -> str:
    """Return the state of the run: lines of text, and a table with one row per device."""
    lines = [describe_progress(run), describe_losses(run), describe_pace(run), describe_lateness(run)]
    lines += [describe_reductions(run.spec), run.error or "", *map(describe_fault, run.faults), *run.notes]
    head = "".join(f"<th>{name}</th>" for name in ("device", "stage", "replica", "state", "busy"))
    body = "".join(
        f"<tr><td>{escape(row.device)}</td><td>{row.stages}</td><td>{row.replica}</td>"
        f"<td>{escape(row.condition) or 'ok'}</td>"
        f"<td>{'' if row.busy is None else format_share(row.busy, 0)}</td></tr>"
        for row in device_rows(run)
    )
    text = "<br>".join(escape(line) for line in lines if line)
    return f"<div>{text}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
