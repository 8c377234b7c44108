"""The button that copies the lab as Python, and the box that shows the code."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from dtfm_lab.domain.errors import LabError
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.view import View

BETWEEN_CELLS = "\n\n# %%\n"
"""The separator of cells in a script that editors and notebooks understand."""


class AsPythonView(View):
    """Calls ``make`` on a thread when it is pressed; the page copies ``code`` where the browser allows it.

    ``make`` returns a list of cells, and may raise a LabError, which is shown as ``problem``.
    """

    code = traitlets.Unicode("").tag(sync=True)
    """The code that is shown; empty before the button is pressed and after the box is closed."""
    busy = traitlets.Bool(False).tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)

    def __init__(self, make: Callable[[], list[str]] = list, **traits: Any) -> None:
        super().__init__(**traits)
        self._make = make

    def press(self) -> None:
        """Write the code anew."""
        if not self.busy:
            self.busy = True
            begin(self._write(), self._report_error)

    async def _write(self) -> None:
        self.problem = ""
        try:
            self.code = BETWEEN_CELLS.join(await asyncio.to_thread(self._make)) + "\n"
        except LabError as error:
            self._report_error(str(error))
        finally:
            self.busy = False

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "make":
            self.press()

    def _report_error(self, message: str) -> None:
        self.problem = message

    def alt_text(self) -> str:
        """Return the code itself: the best that a reader without widgets can be shown."""
        return self.code or "the lab as Python, not written yet"
