"""Options of a run: its clock, with an explanation, and further options.

The further options are its text, evaluations, sample text, and checkpoints.
"""

from html import escape
from typing import Any

from dtfm_lab.domain.options import options_of
from dtfm_lab.domain.units import counted
from dtfm_lab.runtime.protocol.run_options import RunOptions
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import SavedControls, control_for, value_of

ORDER = ("text", "evaluate_every", "sample_bytes", "checkpoint_folder", "checkpoint_every", "resume_from")
"""Order of the controls. Options that are not listed, such as new ones, come below."""
LABEL_WIDTH = "212px"
NOT_OFFERED = frozenset((
    "clock", "emulated", "iterations", "learning_rate", "queueing", "runs_on", "seed", "stand_in", "time_scale",
    "workers",
))  # fmt: skip
"""Options that have a control elsewhere in the lab, or none."""
PLACEHOLDERS = {
    "text": "the lab's own, or a file",
    "checkpoint_folder": "none, or a folder",
    "resume_from": "the beginning, or a folder",
}
EVALUATIONS = 8
"""Evaluations on held-out text per run, if no interval is given."""


class RunOptionControls(SavedControls):
    """Controls of the further options, collapsed because most runs need none of them.

    ``chosen`` returns their values as keywords of ``lab.start``.
    """

    def __init__(self) -> None:
        self._options = {option.name: option for option in options_of(RunOptions) if option.name not in NOT_OFFERED}
        self._controls = self.by_name = {
            name: control_for(option, label_width=LABEL_WIDTH, placeholder=PLACEHOLDERS.get(name, ""))
            for name, option in self._options.items()
        }
        often = f"Iterations between evaluations on held-out text. 0: {EVALUATIONS} evaluations per run"
        self.by_name["evaluate_every"].tooltip = often
        for control in self.by_name.values():
            if isinstance(control, w.Text):
                control.layout.width = f"calc({LABEL_WIDTH} + 240px)"
        further = [name for name in self.by_name if name not in ORDER]
        rows = [self.by_name[name] for name in (*ORDER, *further)]
        self.view = w.Accordion([w.VBox(rows)], titles=("Text and checkpoints",), selected_index=None)

    def chosen(self, iterations: int) -> dict[str, Any]:
        values = {name: value_of(self._options[name], control) for name, control in self.by_name.items()}
        return values | {"evaluate_every": values["evaluate_every"] or max(1, iterations // EVALUATIONS)}


CLOCKS = {
    "virtual": "no waiting: each worker adds its own CPU time and the seconds of the drawn links to a logical clock",
    "paced": "in real time, slowed down so that this machine keeps up: computing takes as long as on the drawn device",
    "real": "this machine as it is: wall time, with loopback instead of the drawn links",
}
CLOCK_NAMES = ("Clock: CPU time", "Clock: as drawn", "Clock: wall time")
"""Names of the clocks in the menu, in the order of ``RUN_CLOCKS``."""


def explain_clock(clock: str, workers: int | None, cores: int) -> str:
    """Return a sentence about the chosen clock, and what it means on this machine. See docs/run-for-real.md."""
    chosen = markup.line(f"<b>{escape(clock)}</b>: {escape(CLOCKS[clock])}.")
    return chosen + markup.line(escape(on_this_machine(clock, workers, cores)))


def chip_words(clock: str, cores: int) -> str:
    """Return what runs and what is modelled, in a few words: ``CPU, 2 cores, links modelled``."""
    links = {"virtual": "links modelled", "paced": "devices and links emulated", "real": "loopback links only"}
    return f"CPU, {counted(cores, 'core')}, {links[clock]}"


def on_this_machine(clock: str, workers: int | None, cores: int) -> str:
    """Return what the clock means here: ``Here: 8 workers share 2 cores: each counts its own CPU time, ...``. Empty
    without workers."""
    if workers is None:
        return ""
    if workers <= cores:
        return f"Here: {counted(workers, 'worker')} on {counted(cores, 'core')}, none has to wait for a core."
    what = {
        "virtual": "each counts its own CPU time, so waiting for a core does not count",
        "paced": "time is slowed down until their work fits, and messages that are still late are counted",
        "real": "waiting for a core counts as computing, which the prediction does not include",
    }[clock]
    return f"Here: {counted(workers, 'worker')} share {counted(cores, 'core')}: {what}."
