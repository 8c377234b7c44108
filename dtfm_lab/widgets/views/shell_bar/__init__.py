"""The bar over the lab: a step each with its state, to jump to; and what only the page knows, its theme."""

import traitlets

from dtfm_lab.widgets.views.view import View


class ShellBar(View):
    """Draws ``steps`` as buttons that scroll to their sections; tells in ``dark`` how the page looks.

    Alt and a step's number jump to it from anywhere in the lab. The page's sections get their names for
    screen readers from here, too.
    """

    steps = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "title", "kind": open | done | stale | busy, "words"} of each step, in order."""
    dark = traitlets.Bool(False).tag(sync=True)
