"""Further options of a run: its text, evaluations, what the model writes, and checkpoints."""

from typing import Any

import ipywidgets as w

from dtfm_lab.domain.options import options_of
from dtfm_lab.runtime.protocol.run_options import RunOptions
from dtfm_lab.widgets.controls import control_for, restore_values, value_of, values_of

ROWS = (("text", "evaluate_every", "sample_bytes"), ("checkpoint_folder", "checkpoint_every", "resume_from"))
"""Rows of the controls. Options that are not listed here, such as newly added ones, share a row below."""
NOT_OFFERED = frozenset(
    {
        "clock",
        "emulated",
        "iterations",
        "learning_rate",
        "parameters_folder",
        "queueing",
        "runs_on",
        "seed",
        "stand_in",
        "time_scale",
        "workers",
    }
)
"""Options with a control elsewhere in the lab, or none."""
PLACEHOLDERS = {
    "text": "the lab's own, or a file",
    "checkpoint_folder": "none, or a folder",
    "resume_from": "the beginning, or a checkpoint's folder",
}
SAMPLE_BYTES = 160
"""Bytes that the trained model writes unless a person changes that."""
EVALUATIONS = 8
"""Evaluations on held-out text in a run, where no number of iterations between them is given."""


class RunOptionControls:
    """The controls, collapsed, as most runs need none of them; ``chosen`` returns keywords of ``lab.start``."""

    def __init__(self) -> None:
        self._options = {option.name: option for option in options_of(RunOptions) if option.name not in NOT_OFFERED}
        self.by_name = {
            name: control_for(option, placeholder=PLACEHOLDERS.get(name, "")) for name, option in self._options.items()
        }
        self.by_name["sample_bytes"].value = SAMPLE_BYTES
        often = f"Iterations between evaluations on held-out text; 0: {EVALUATIONS} evaluations in a run"
        self.by_name["evaluate_every"].tooltip = often
        further = [name for name in self.by_name if not any(name in row for row in ROWS)]
        rows = [w.HBox([self.by_name[name] for name in row]) for row in (*ROWS, further)]
        self.view = w.Accordion([w.VBox(rows)], titles=("Text and checkpoints",), selected_index=None)

    def chosen(self, iterations: int) -> dict[str, Any]:
        values = {name: value_of(self._options[name], control) for name, control in self.by_name.items()}
        return values | {"evaluate_every": values["evaluate_every"] or max(1, iterations // EVALUATIONS)}

    def settings(self) -> dict[str, Any]:
        return values_of(self.by_name)

    def restore(self, settings: object) -> None:
        """Set the controls to saved values; unknown or impossible values are ignored."""
        restore_values(self.by_name, settings)
