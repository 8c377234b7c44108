"""The losses of a run as they arrive: training, held-out text, and that text's unigram entropy for reference."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import traitlets

from dtfm_lab.domain.units import counted
from dtfm_lab.widgets.views.view import View


class LossView(View):
    """Draws losses over the completed iterations. Only new points are sent. A page that opens late sends ``hello`` and
    receives everything."""

    title = traitlets.Unicode("Loss").tag(sync=True)
    unit = traitlets.Unicode("nats per token").tag(sync=True)
    """Unit of the losses. Empty for a torch module of your own."""
    beside = traitlets.Unicode("held-out text").tag(sync=True)
    """Name of the data that is never trained on, for the legend."""
    caption = traitlets.Unicode("").tag(sync=True)
    first = traitlets.Int(0).tag(sync=True)
    """Iterations done before the first one shown."""
    total = traitlets.Int(0).tag(sync=True)
    """Iterations of the run, without the ``first`` ones."""
    reference = traitlets.Float(None, allow_none=True).tag(sync=True)
    """Unigram entropy of the held-out text in nats per token."""
    marks = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"at", "text"} of each event of the run, after ``at`` completed iterations."""
    height = traitlets.Int(200).tag(sync=True)
    """Pixels of the chart. 0 fills the parent element."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.training: list[float] = []
        self.held_out: list[tuple[float, float]] = []

    def reset(self, first: int = 0, total: int = 0) -> None:
        """Remove all losses and prepare for ``total`` iterations, after ``first`` earlier ones that are not shown."""
        with self.hold_sync():
            self.first, self.total, self.reference, self.marks = first, total, None, []
        self.training, self.held_out = [], []
        self._send_since(0, held_out=True)

    def follow(
        self, training: Sequence[float], held_out: Sequence[tuple[float, float]] = (), reference: float | None = None
    ) -> None:
        """Show these losses. Only those after the first difference are sent. Earlier losses may differ, because some
        iterations are repeated after a worker is lost."""
        training, held_out = list(training), list(held_out)
        self.reference = reference
        if training == self.training and held_out == self.held_out:
            return
        kept = len(self.training)
        # Usually all earlier losses are unchanged, which one comparison of lists shows fastest.
        if training[:kept] != self.training:
            alike = takewhile(lambda pair: pair[0] == pair[1], zip(training, self.training, strict=False))
            kept = sum(1 for _ in alike)
        looked = held_out != self.held_out
        self.training, self.held_out = training, held_out
        self._send_since(kept, held_out=looked)

    def alt_text(self) -> str:
        if not self.training:
            return f"{self.title}: none yet"
        held_out = f", held-out {self.held_out[-1][1]:.3f}" if self.held_out else ""
        entropy = "" if self.reference is None else f", unigram entropy {self.reference:.3f}"
        ends = f"{self.training[0]:.3f} to {self.training[-1]:.3f} {self.unit}".rstrip()
        return f"{self.title}: {ends} in {counted(len(self.training), 'iteration')}{held_out}{entropy}"

    def _send_since(self, since: int, *, held_out: bool) -> None:
        message: dict[str, Any] = {"kind": "losses", "from": since}
        if held_out:
            # JSON has no number for a loss that has diverged.
            message["held_out"] = [[at, loss] for at, loss in self.held_out if np.isfinite(loss)]
        self.send(message, buffers=[np.asarray(self.training[since:], dtype="<f8").tobytes()])

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "hello":
            self._send_since(0, held_out=True)
