"""The lessons with their missions. The chosen one opens with its task, hints, answer and verdict."""

import html
import re

import traitlets

from dtfm_lab.widgets.views.view import View


class CourseView(View):
    """Draws ``lessons``. A click on a mission sets ``chosen``. Pressed buttons are sent as {"kind", "text"}.

    Kinds: hint, answer, check (what is on the screen), typed (with the text), open (the network that the mission
    gives).
    """

    lessons = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "title", "question", "minutes", "missions"} of each lesson, in order. A mission is {"name", "title",
    "minutes", "passed", "note"}."""
    chosen = traitlets.Unicode("").tag(sync=True)
    """Name of the mission that is open; empty for none."""
    detail = traitlets.Dict().tag(sync=True)
    """What the open mission shows. Texts that may contain markup are HTML."""
    caption = traitlets.Unicode("").tag(sync=True)
    n_passed = traitlets.Int(0).tag(sync=True)
    n_missions = traitlets.Int(0).tag(sync=True)
    next = traitlets.Unicode("").tag(sync=True)
    """Name of the first mission that is not won; empty if all are."""
    problem = traitlets.Unicode("").tag(sync=True)

    def alt_text(self) -> str:
        words = f"Course: {self.caption or 'nothing yet'}."
        task = html.unescape(re.sub(r"<[^>]+>", "", str(self.detail.get("task", ""))))
        return f"{words} {task}".strip()
