"""The lessons with their missions; one that is chosen opens with its task, hints, answer and verdict."""

import html
import re

import traitlets

from dtfm_lab.widgets.views.view import View


class CourseView(View):
    """Draws ``lessons``; a click on a mission sets ``chosen``. What is pressed in it is sent as {"kind", "text"}.

    Kinds: hint, answer, check (what is on the screen), typed (with the text), open (the network that it gives).
    """

    lessons = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "title", "question", "minutes", "missions"} of each, in order; a mission is {"name", "title", "minutes",
    "passed", "note"}."""
    chosen = traitlets.Unicode("").tag(sync=True)
    """Name of the mission that is open; empty for none."""
    detail = traitlets.Dict().tag(sync=True)
    """What the open mission shows; texts that may have marks are HTML."""
    caption = traitlets.Unicode("").tag(sync=True)
    n_passed = traitlets.Int(0).tag(sync=True)
    n_missions = traitlets.Int(0).tag(sync=True)
    next = traitlets.Unicode("").tag(sync=True)
    """Name of the first mission that is not won; empty where all are."""
    problem = traitlets.Unicode("").tag(sync=True)

    def alt_text(self) -> str:
        words = f"Course: {self.caption or 'nothing yet'}."
        task = html.unescape(re.sub(r"<[^>]+>", "", str(self.detail.get("task", ""))))
        return f"{words} {task}".strip()
