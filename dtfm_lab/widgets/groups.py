"""A plan's coarsened graph: its device groups in path order, and the matching behind each hop."""

import traitlets

from dtfm_lab.widgets.view import STATIC, View

NO_EDGE = -1


class GroupsView(View):
    """Draws device groups, one a stage, as a path; a matrix above 16 groups.

    Clicking the edge from stage ``s`` to ``s + 1`` sets ``selected_edge`` to ``s`` and opens its matching.
    """

    _esm = STATIC / "groups.js"
    _css = STATIC / "groups.css"

    groups = traitlets.List(traitlets.Dict()).tag(sync=True)
    """one {"stage", "devices", "cost_s"} a stage, in stage order; cost_s is its synchronisation"""
    weights = traitlets.List(traitlets.List()).tag(sync=True)
    """(S, S) seconds between any two groups, symmetric"""
    matchings = traitlets.List(traitlets.List()).tag(sync=True)
    """S - 1 lists of [device, device, seconds]"""
    title = traitlets.Unicode("Groups").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    selected_edge = traitlets.Int(NO_EDGE).tag(sync=True)
    height = traitlets.Int(360).tag(sync=True)
