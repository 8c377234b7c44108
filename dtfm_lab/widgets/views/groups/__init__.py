"""A plan's groups in path order, in the paper's five steps or as a matrix; a device dragged changes the plan."""

import traitlets

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.widgets.views.groups.drawing import cost_of, groups_of, matching_of, network_of
from dtfm_lab.widgets.views.view import View

NO_EDGE = -1
NO_GROUP = -1


class GroupsView(View):
    """Draws the groups as columns in path order, one of the steps (a) to (e), or the weights between any two groups.

    With more than 16 groups, steps (d) and (e) are the matrix of weights as well.
    Clicking a device, a group or an edge selects it; the edge from stage ``s`` to ``s + 1`` is ``selected_edge`` ``s``
    and opens its matching, any other is ``other_edge``. Dragging a device sends ``{"kind": "lift", "device"}`` when
    it begins, and ``{"kind": "drop", "device", "partner"}`` or ``{..., "stage"}`` when it ends; the panel
    then sets ``offers`` or shows another plan. Control-Z sends ``undo``, with Shift ``redo``.
    """

    groups = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"stage", "devices", "cost_s"} of each stage, in stage order; cost_s is its synchronisation in s. Optional
    are "letter", "layers", "regions" and "gpus", the names of the devices' regions and of each device's GPU, and
    "device_s", the seconds that each device spends on it."""
    weights = traitlets.List(traitlets.List()).tag(sync=True)
    """(S, S) seconds between any two groups, symmetric."""
    matchings = traitlets.List(traitlets.List()).tag(sync=True)
    """S - 1 lists of [device, device, seconds], optionally followed by the seconds there and the seconds back."""
    cost = traitlets.Dict().tag(sync=True)
    """What the communication cost consists of, as ``cost_of`` returns it; the sum is not drawn where it is empty."""
    idle = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the devices that the plan leaves out."""
    network = traitlets.Dict().tag(sync=True)
    """Places of the devices and the links that are drawn, as ``network_of`` returns them. Where empty, devices are
    drawn on a circle."""
    mode = traitlets.Enum(["path", "ring", "weights"], "path").tag(sync=True)
    """Columns in path order, the five steps, or the matrix."""
    step = traitlets.Enum(list("abcde"), "e").tag(sync=True)
    """The step that the mode "ring" shows."""
    title = traitlets.Unicode("Groups").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    hint = traitlets.Unicode("No plan yet").tag(sync=True)
    """The text of an empty view."""
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the selected devices."""
    selected_group = traitlets.Int(NO_GROUP).tag(sync=True)
    selected_edge = traitlets.Int(NO_EDGE).tag(sync=True)
    other_edge = traitlets.List(traitlets.Int()).tag(sync=True)
    """Two selected stages that are not neighbours; empty for none."""
    other_matching = traitlets.List(traitlets.List()).tag(sync=True)
    """The matching of ``other_edge``, as in ``matchings``."""
    offers = traitlets.Dict().tag(sync=True)
    """The cost of every other place of one device, as ``hand_moves.offers`` returns it."""
    can_move = traitlets.Bool(False).tag(sync=True)
    """Whether a dragged device may be dropped elsewhere."""
    height = traitlets.Int(360).tag(sync=True)
    """Pixels; 0 fills the element that the view is in."""
    _plan: Plan | None = None
    _topology: Topology | None = None
    """The topology that ``network`` was made from."""

    def show(self, plan: Plan | None) -> None:
        """Draw a plan; None empties the view. The step stays, and so does the selection where the plan has it."""
        with self.hold_sync():
            self._plan = plan
            self.offers, self.other_edge, self.other_matching = {}, [], []
            if plan is None:
                self.groups, self.weights, self.matchings, self.idle = [], [], [], []
                self.network, self.cost = {}, {}
                self.selected, self.selected_group, self.selected_edge = [], NO_GROUP, NO_EDGE
                return
            n, names = plan.job.n_stages, plan.topology.names
            self.groups = groups_of(plan)
            self.weights = plan.cost.weights_s.tolist()
            self.matchings = [matching_of(plan, s, s + 1) for s in range(n - 1)]
            self.cost = cost_of(plan)
            self.idle = [names[i] for i in plan.idle_devices]
            if plan.topology is not self._topology or not self.network:
                self.network, self._topology = network_of(plan.topology), plan.topology
            self.selected = [name for name in self.selected if name in names]
            self.selected_group = self.selected_group if self.selected_group < n else NO_GROUP
            self.selected_edge = self.selected_edge if self.selected_edge < n - 1 else NO_EDGE

    def alt_text(self) -> str:
        n = len(self.groups)
        if not n:
            return self.hint
        slowest_s = max(group["cost_s"] for group in self.groups)
        hops = [max((pair[2] for pair in pairs), default=0.0) for pairs in self.matchings]
        return (
            f"{self.title}: {n} group{'s' * (n != 1)} of {len(self.groups[0]['devices'])}, slowest synchronisation "
            f"{slowest_s:.4g} s, path {sum(hops):.4g} s"
            f"{f'; step ({self.step})' if self.mode == 'ring' else ''}"
        )
