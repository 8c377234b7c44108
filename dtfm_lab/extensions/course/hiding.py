"""Hides the rest of a notebook's cell. The cell is executed, but nothing that it prints or displays is shown."""

from __future__ import annotations

import io
import sys
from typing import Any


def hide_rest_of_cell() -> None:
    """Discard what the current cell prints and displays from here to its end. Exceptions stay visible.

    Outside a notebook there is no cell, and nothing is hidden.
    """
    ipython = sys.modules.get("IPython")  # a kernel has loaded it
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    from IPython.core.displaypub import CapturingDisplayPublisher

    printed, warned, published = sys.stdout, sys.stderr, shell.display_pub
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    shell.display_pub = CapturingDisplayPublisher()  # type: ignore[no-untyped-call]
    sys.displayhook = lambda _: None  # the shell puts its own back after the cell

    def show_again(_: Any) -> None:
        shell.events.unregister("post_run_cell", show_again)
        sys.stdout, sys.stderr, shell.display_pub = printed, warned, published

    shell.events.register("post_run_cell", show_again)
