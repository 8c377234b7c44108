"""What else may be said of a run: its text, looks at the held-out part, what is written, and checkpoints."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from dtfm_lab.widgets.control_state import restore, settings

MOST = 10_000
LOOKS = 8
"""at the held-out text in a run, where nobody says how often"""


class RunOptionControls:
    """Collapsed, for most runs need none of it; ``chosen`` are keywords of ``lab.start``."""

    def __init__(self) -> None:
        self.text = _path("Text", "the lab's own, or a file")
        self.evaluate_every = _count(
            "Held-out every (iterations)", 0, "Iterations between looks at the held-out text; 0: eight looks in a run"
        )
        self.sample_bytes = _count("Writes (bytes)", 160, "Bytes that the trained model writes at the end")
        self.checkpoint_folder = _path("Checkpoints", "none, or a folder")
        self.checkpoint_every = _count(
            "every (iterations)", 0, "Iterations between checkpoints; 0: only after the last"
        )
        self.resume_from = _path("Go on from", "the beginning, or a checkpoint's folder")
        rows = [
            w.HBox([self.text, self.evaluate_every, self.sample_bytes]),
            w.HBox([self.checkpoint_folder, self.checkpoint_every, self.resume_from]),
        ]
        self.view = w.Accordion([w.VBox(rows)], titles=("Text and checkpoints",), selected_index=None)
        names = ("text", "evaluate_every", "sample_bytes", "checkpoint_folder", "checkpoint_every", "resume_from")
        self._controls: dict[str, w.ValueWidget] = {name: getattr(self, name) for name in names}

    def chosen(self, iterations: int) -> dict[str, Any]:
        return {
            "text": self.text.value.strip() or None,
            "evaluate_every": self.evaluate_every.value or max(1, iterations // LOOKS),
            "sample_bytes": self.sample_bytes.value,
            "checkpoint_folder": self.checkpoint_folder.value.strip() or None,
            "checkpoint_every": self.checkpoint_every.value,
            "resume_from": self.resume_from.value.strip() or None,
        }

    def settings(self) -> dict[str, Any]:
        """Plain values by name."""
        return settings(self._controls)

    def restore(self, values: object) -> None:
        """The controls as they were; what is unknown or not possible is left as it is."""
        restore(self._controls, values)


def _path(name: str, placeholder: str) -> w.Text:
    return w.Text(description=name, placeholder=placeholder, layout=w.Layout(width="330px"))


def _count(name: str, value: int, tooltip: str) -> w.BoundedIntText:
    return w.BoundedIntText(
        value,
        min=0,
        max=MOST,
        description=name,
        tooltip=tooltip,
        layout=w.Layout(width=f"{95 + 7 * len(name)}px"),
        style={"description_width": f"{7 * len(name)}px"},
    )
