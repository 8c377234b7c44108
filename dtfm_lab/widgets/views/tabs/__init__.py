"""Tabs over a pane of the lab: which of several views is shown, and how far each has come."""

import traitlets

from dtfm_lab.widgets.views.view import View


class TabsView(View):
    """A row of tabs; a click, an arrow key or the page's digits set ``value``."""

    label = traitlets.Unicode("").tag(sync=True)
    """What the tabs choose, for screen readers."""
    tabs = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{name, title, kind, words} of each; ``kind`` is one of open, done, stale, busy, and ``words`` its tooltip."""
    value = traitlets.Unicode("").tag(sync=True)
    """Name of the tab that is chosen."""
    numbered = traitlets.Bool(False).tag(sync=True)
    """Whether digits of the keyboard choose."""

    def alt_text(self) -> str:
        return f"{self.label}: {self.value}"
