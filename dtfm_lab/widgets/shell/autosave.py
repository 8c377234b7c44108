"""Save the lab as it changes, and offer the saved file after a restart."""

import asyncio
import atexit
import contextlib
import hashlib
import os
from collections.abc import Callable, Coroutine
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from dtfm_lab.domain.errors import LabError
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button
from dtfm_lab.widgets.tasks import begin, has_event_loop

DELAY_S = 2.0
"""Seconds from a change until it is saved, so that a search or a drag is saved once."""


def autosave_path(folder: Path | None = None, visitor: str = "") -> Path:
    """Return this notebook's autosave file, or the current folder's if no notebook is named.

    It is in the user's state folder. A page that many people open has one file per visitor in ``folder``.
    """
    where = visitor or os.environ.get("JPY_SESSION_NAME") or str(Path.cwd())
    folder = folder or user_state_path("dtfm_lab") / "autosave"
    return folder / f"{hashlib.sha256(where.encode()).hexdigest()[: 32 if visitor else 16]}.json"


class Autosave:
    """Saves ``DELAY_S`` after ``changed()``, or when the kernel ends before that.

    An earlier lab's file is kept next to the new one until the user forgets it or the next lab replaces it. Without a
    path, nothing is saved until ``keep_in`` names one.

    ``write`` and ``read`` take a path. ``write`` is called on the event loop and returns a function for a thread.
    ``read`` is a coroutine and may raise a LabError. Nothing is written before the first change, so that opening a lab
    and only looking at it keeps what was saved before.
    """

    def __init__(
        self,
        path: Path | None,
        write: Callable[[Path], Callable[[], Any]],
        read: Callable[[Path], Coroutine[Any, Any, None]],
        *,
        restores: bool = False,
    ) -> None:
        """If ``restores``, what an earlier lab has left in ``path`` is restored at once, instead of offered."""
        self._write, self._read = write, read
        self._path: Path | None = None
        self._is_due = self._writing = False
        self._line = w.HTML()
        self.restore = button("Restore", "history", "Restore what was on the screen then")
        self.forget = button("Forget", "trash", "Delete the saved lab")
        self.restore.on_click(lambda _: begin(self._restore(), self._report_error))
        self.forget.on_click(lambda _: self._forget())
        self.view = w.HBox([self._line], layout=w.Layout(display="none"))
        if path is not None:
            self.keep_in(path, restores=restores)

    def keep_in(self, path: Path, *, restores: bool) -> None:
        """Save into this file from now on, and offer or restore what an earlier lab has left there."""
        self._path, self._before = path, path.with_name(f"{path.stem}-before{path.suffix}")
        self._offer(restores)

    def changed(self) -> None:
        """Save soon. Without an event loop, as in a plain script, nothing is saved."""
        if self._path is None or not has_event_loop():
            return
        self._is_due = True
        # The loop that is writing sees the mark and saves once more.
        if self._writing:
            return
        self._writing = True
        begin(self._save_until_done(), self._report_error)

    async def _save_until_done(self) -> None:
        """Save, and save again if something changed during that time."""
        # A program may end within the delay, and its last change must be saved all the same.
        atexit.register(self._save_at_exit)
        try:
            while self._is_due:
                await asyncio.sleep(DELAY_S)
                await self._save()
        finally:
            self._writing = False
            atexit.unregister(self._save_at_exit)

    async def _save(self) -> None:
        try:
            await asyncio.to_thread(self._begin_save())
        except OSError as error:
            self._report_error(f"autosave: {error.strerror or error}: {self._path}")

    def _begin_save(self) -> Callable[[], Any]:
        assert self._path is not None
        self._is_due = False
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._write(self._path)

    def _save_at_exit(self) -> None:
        with contextlib.suppress(OSError, LabError):  # at exit, no one is left to read an error
            if self._is_due:
                self._begin_save()()

    def _offer(self, restores: bool) -> None:
        assert self._path is not None
        try:
            if self._path.exists():
                # Moved aside, so that the new lab's first save does not overwrite what is offered.
                os.replace(self._path, self._before)
            kept = self._before.stat()
        except OSError:  # there is no saved file, or the folder cannot be written to
            return
        if restores:
            begin(self._restore(), self._report_error)
            return
        when = datetime.fromtimestamp(kept.st_mtime).strftime("%d %B, %H:%M")
        self._line.value = markup.line(f"Your lab of {when} was saved.")
        self.view.children = [self._line, self.restore, self.forget]
        self.view.layout.display = ""

    async def _restore(self) -> None:
        self.restore.disabled = self.forget.disabled = True
        try:
            await self._read(self._before)
        finally:
            self.restore.disabled = self.forget.disabled = False
        self.view.layout.display = "none"

    def _forget(self) -> None:
        try:
            self._before.unlink(missing_ok=True)
        except OSError as error:
            self._report_error(f"autosave: {error.strerror or error}: {self._before}")
            return
        self.view.layout.display = "none"

    def _report_error(self, message: str) -> None:
        self._line.value = markup.line(escape(message), "warning")
        self.view.layout.display = ""
