"""Step 3: the groups of the plan and the path through them."""

from __future__ import annotations

from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.groups import GroupsView


class GroupsPanel:
    """Shows ``bench.plan`` as its coarsened graph."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.groups = GroupsView(height=330)
        self.view = self.groups
        bench.observe(lambda _: self._show(), "plan")
        self._show()

    def _show(self) -> None:
        plan = self._bench.plan
        if plan is None:
            self.groups.groups, self.groups.weights, self.groups.matchings = [], [], []
            return
        graph = plan.coarse_graph()
        n = graph.number_of_nodes()
        with self.groups.hold_sync():
            self.groups.selected_edge = -1
            self.groups.groups = [
                {"stage": s, "devices": graph.nodes[s]["devices"], "cost_s": graph.nodes[s]["cost_s"]} for s in range(n)
            ]
            self.groups.weights = plan.cost.weights_s.tolist()
            self.groups.matchings = [[list(pair) for pair in graph.edges[s, s + 1]["matching"]] for s in range(n - 1)]
            self.groups.caption = (
                "A circle is a stage's data-parallel group; a thick line is a hop of all pipelines, forward and back."
            )
