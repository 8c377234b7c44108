"""The bar above the lab: a button for each step with its state; it also reports the page's theme."""

import traitlets

from dtfm_lab.widgets.views.view import View


class ShellBar(View):
    """Draws ``steps`` as buttons that scroll to their sections; the page sets ``dark`` where it has a dark theme.

    Alt and a step's number jump to it from anywhere in the lab. The sections get their names for screen
    readers from ``steps``, too.
    """

    steps = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "title", "kind": open | done | stale | busy, "words"} of each step, in order."""
    dark = traitlets.Bool(False).tag(sync=True)
