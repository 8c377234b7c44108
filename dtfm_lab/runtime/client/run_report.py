"""A run in words, for the terminal, the notebook and the Lab: plain text, except ``html``."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from dtfm_lab.domain.trace import Fault
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning.explain import sentences
from dtfm_lab.runtime.client.record import Record
from dtfm_lab.runtime.protocol.run_spec import RunSpec

CAME_BACK = "came back"
"""how a worker that stood still takes its place again, in ``Fault.how``"""


class DeviceRow(NamedTuple):
    """What is said of one device that runs."""

    device: str
    stages: str
    replica: int
    condition: str
    """empty where it is as it was: else lost, back, paused, 2 x slower"""
    busy: float | None
    """share of the last whole iteration"""


def device_rows(run: Record) -> list[DeviceRow]:
    """By rank: pipeline by pipeline, in the order of stages."""
    spec, busy = run.spec, run.busy()
    rows = []
    for position, replica in spec.workers:
        name = spec.device_name(position, replica)
        stages = ", ".join(map(str, spec.built.stages_of(position)))
        rows.append(DeviceRow(name, stages, replica, run.conditions.get(name, ""), busy.get(name)))
    return rows


def doing(run: Record) -> str:
    """Where it is: "3 of 8 iterations done", "stopped after 3 of 8 iterations"."""
    whole = f"{len(run.losses)} of {run.spec.iterations} iterations"
    before = f", {run.spec.first_iteration} before them" if run.spec.first_iteration else ""
    return {
        "starting": f"starting {len(run.spec.workers)} workers",
        "profiling": "profiling: a few iterations on copies, to know what computations cost here",
        "running": f"{whole} done{before}",
        "done": f"{whole} done{before}",
        "stopped": f"stopped after {whole}{before}",
        "failed": f"failed after {whole}{before}",
    }[run.status]


def counted(run: Record) -> str:
    """What came too late; empty where nothing did."""
    if not (run.late_messages or run.overruns):
        return ""
    return f"{run.late_messages} late messages, {run.overruns} overruns"


def pace(run: Record) -> str:
    """How much slower than the drawn devices the paced clock goes; empty where it does not."""
    if run.spec.clock != "paced" or not run.profile:
        return ""
    said = f"slowed down {run.time_scale:.3g} times"
    if run.stretched:
        said += f"; {run.stretched} computation times stretched, because the drawn devices outrun this machine"
    return said


def kept(run: Record) -> str:
    """The newest checkpoint, and where it is; empty where there is none."""
    if not run.checkpoints:
        return ""
    done, folder = run.checkpoints[-1]
    return f"checkpoint after {sentences.counted(done, 'iteration')} in {folder}"


def learnt(run: Record) -> str:
    """The last losses beside what a model without context can reach; empty before the first."""
    said = [f"loss {run.losses[-1]:.4f}"] if run.losses else []
    if run.held_out:
        said.append(f"held-out loss {run.held_out[-1][1]:.4f}")
    if run.unigram_entropy is not None:
        said.append(f"unigram entropy {run.unigram_entropy:.4f}")
    return ", ".join(said)


def fault(lost: Fault) -> str:
    """``Tokyo-3 was killed by SIGKILL in iteration 3; its state came from Tokyo-7; 0.6 s``"""
    return (
        f"{lost.device} {lost.how} in iteration {lost.iteration}; its state came from {lost.state_from}; "
        f"{format_s(lost.lost_s)}"
    )


def recovered(lost: Fault) -> str:
    """``recovered in 0.6 s, state from Tokyo-7``"""
    how = "came back" if lost.how == CAME_BACK else "recovered"
    return f"{how} in {format_s(lost.lost_s)}, state from {lost.state_from}"


def written(run: Record) -> tuple[str, str]:
    """The beginning that the trained model was given and what it wrote; bytes that are no text as �."""
    return _printable(run.prompt), _printable(run.text or "")


def reduced(spec: RunSpec) -> str:
    """Which part of the plan runs, with what instead of its model and links; empty where all is as planned."""
    said = []
    if spec.subplan is not None:
        said.append(f"rehearsal of a part: {spec.subplan.sentence}")
    if spec.stand_in is not None:
        model = spec.plan.job.modelled().name
        said.append(f"model {spec.stand_in.name} is trained in place of {model}, messages are as long as the job's")
    if spec.emulated is not None:
        said.append(f"the links emulated are those of {spec.emulated.name}")
    return "; ".join(said)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def html(run: Record) -> str:
    """The run as it is now: one line, and a table with a row a device."""
    lines = [doing(run), learnt(run), pace(run), counted(run), reduced(run.spec), run.error or ""]
    lines += [fault(lost) for lost in run.faults]
    head = "".join(f"<th>{name}</th>" for name in ("device", "stage", "replica", "state", "busy"))
    body = "".join(
        f"<tr><td>{escape(row.device)}</td><td>{row.stages}</td><td>{row.replica}</td>"
        f"<td>{escape(row.condition) or 'ok'}</td><td>{'' if row.busy is None else f'{row.busy:.0%}'}</td></tr>"
        for row in device_rows(run)
    )
    said = "<br>".join(escape(line) for line in lines if line)
    return f"<div>{said}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
