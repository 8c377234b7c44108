"""A plan's groups in path order, in the paper's five steps or as a matrix. Dragging a device changes the plan."""

from collections import Counter
from itertools import accumulate, combinations
from typing import Any, NamedTuple

import numpy as np
import traitlets

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray, to_gbps, to_ms
from dtfm_lab.figures.maps.layout import device_places, is_drawn, region_patches
from dtfm_lab.planning.cost import bottleneck_matching, pair_costs
from dtfm_lab.planning.search import PROVEN
from dtfm_lab.widgets.views.view import View

EVERY_LINK_UP_TO = 16
"""Maximum devices for which every link is drawn. For more, links between regions are bundled."""
BUNDLED_UP_TO = 24
"""Maximum regions between which links are bundled. With more, or only one, each device's fastest links are drawn."""
FEW_REGIONS = 8
"""Maximum regions for which every two are joined by a line. For more, each is joined to its ``FASTEST`` others."""
FASTEST = 4
"""Number of links drawn per device or region if not all are drawn."""
WHOLE_REGION_UP_TO = 12
"""Maximum devices of a region in which every link is drawn. In a larger one, each device's fastest links are drawn."""

Pair = tuple[int, int]


class Lettered(NamedTuple):
    """The letters of a plan's groups: A, B, C and so on, in the order of each group's first device in the network."""

    order: tuple[int, ...]
    """Stages in the order of their groups' letters."""

    def letter(self, stage: int) -> str:
        """Return the letter of a stage's group: ``A`` to ``Z``, then ``AA``."""
        letters, at = "", self.order.index(stage) + 1
        while at:
            at, letter = divmod(at - 1, 26)
            letters = chr(ord("A") + letter) + letters
        return letters


def lettered(plan: Plan) -> Lettered:
    """Return the letters of a plan's groups."""
    grid = plan.placement.devices
    return Lettered(tuple(sorted(range(len(grid)), key=lambda stage: int(grid[stage].min()))))


def groups_of(plan: Plan) -> list[dict[str, Any]]:
    """Return {"stage", "letter", "devices", "regions", "gpus", "cost_s", "device_s", "layers"} of each stage.

    device_s are the seconds that each device, in the order of pipelines, spends on synchronising. gpus are named in the
    same order. regions are ordered by their number of devices.
    """
    names, grid, letters = plan.topology.names, plan.placement.devices, lettered(plan)
    group_s = pair_costs(plan.topology, plan.job).group_s
    own_s = group_s[grid[:, :, None], grid[:, None, :]].sum(axis=2)
    layers, devices = layers_of(plan), plan.topology.devices
    return [
        {
            "stage": s,
            "letter": letters.letter(s),
            "devices": [names[i] for i in group],
            "regions": [name for name, _ in Counter(devices[i].region for i in group).most_common() if name],
            "gpus": [devices[i].gpu for i in group],
            "cost_s": float(plan.cost.group_s[s]),
            "device_s": own_s[s].tolist(),
            "layers": layers[s],
        }
        for s, group in enumerate(grid)
    ]


def cost_of(plan: Plan) -> dict[str, Any]:
    """Return the parts of the communication cost.

    {"total_s", "averaging_s", "bound_s", "is_proven", "hops": [{"seconds", "devices", "gbps", "ms"}]}. averaging_s is
    the slowest group's. A hop waits for its slowest pair of devices. gbps and ms belong to that pair's link, from the
    earlier stage to the later one. bound_s is the lower bound for plans of this shape.
    """
    topology, hops = plan.topology, []
    for stage in range(plan.job.n_stages - 1):
        source, target, *_ = matching_of(plan, stage, stage + 1)[0]
        a, b = topology.index(source), topology.index(target)
        gbps, ms = to_gbps(topology.bandwidth_bytes_per_s[a, b]), to_ms(topology.latency_s[a, b])
        hop = {"seconds": float(plan.cost.hop_s[stage]), "devices": [source, target]}
        hops.append(hop | {"gbps": float(f"{gbps:.4g}"), "ms": float(f"{ms:.4g}")})
    cost = {"total_s": plan.cost.total_s, "averaging_s": plan.cost.data_parallel_s, "bound_s": plan.lower_bound_s}
    return cost | {"is_proven": plan.gap < PROVEN, "hops": hops}


def matching_of(plan: Plan, a: int, b: int) -> list[list[Any]]:
    """Return the pairs of devices of stages ``a`` and ``b``, slowest first.

    A pair is [device of a, device of b, seconds, seconds there, seconds back]. *There* is from a to b, *back* from b to
    a. Devices of neighbouring stages are paired as in the plan's pipelines, others by their bottleneck matching.
    """
    topology, here, there = plan.topology, plan.placement.devices[a], plan.placement.devices[b]
    if abs(a - b) != 1:
        _, columns = bottleneck_matching(pair_costs(topology, plan.job).hop_s[np.ix_(here, there)])
        there = there[columns]
    there_s, back_s = (
        topology.latency_s[source, target] + plan.job.hop_bytes / topology.bandwidth_bytes_per_s[source, target]
        for source, target in ((here, there), (there, here))
    )
    order = np.argsort(-(there_s + back_s), kind="stable")
    names = topology.names
    return [
        [names[here[k]], names[there[k]], float(there_s[k] + back_s[k]), float(there_s[k]), float(back_s[k])]
        for k in order
    ]


def network_of(topology: Topology) -> dict[str, Any]:
    """Return the positions of devices in the network, without a plan, and the links to draw.

    {"devices": [{"name", "region", "gpu", "x", "y"}], "regions": [{"name", "x", "y", "half", "round"}], "links",
    "bundles"}. y grows downwards, and the smallest distance between devices is 1. A link is [i, j, strength, ms,
    Gbit/s, ms back, Gbit/s back] of two devices. A bundle is the same for two regions, by medians. Strength, from 0 to
    1, grows with the bandwidth of the slower direction.
    """
    places = device_places(topology) * (1, -1)
    # a network without regions has one with an empty name, which is not drawn
    regions = topology.regions if len(topology.regions) > 1 or topology.regions[0] else ()
    margin = 1.1 if len(topology) <= EVERY_LINK_UP_TO and not is_drawn(topology) else 0.65
    patches = region_patches(topology, places, margin=margin)
    members = {r: np.array([i for i, d in enumerate(topology.devices) if d.region == r]) for r in topology.regions}
    links, bundles = _drawn(topology, members)
    return {
        "devices": [
            {"name": device.name, "region": device.region, "gpu": device.gpu, "x": x, "y": y}
            for device, (x, y) in zip(topology.devices, places.round(4).tolist(), strict=True)
        ],
        "regions": [
            {"name": region, "x": x, "y": y, "half": patches[region].half.tolist(), "round": patches[region].round}
            for region in regions
            for x, y in [patches[region].centre.tolist()]
        ],
        "links": _between(topology, links),
        "bundles": _between(topology, bundles, list(members.values())),
    }


def _drawn(topology: Topology, members: dict[str, IntArray]) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of devices, and the pairs of regions, that get a line."""
    n = len(topology)
    # One line stands for both directions, and a pipeline uses both, so the slower one counts.
    speed = np.minimum(topology.bandwidth_bytes_per_s, topology.bandwidth_bytes_per_s.T)
    if n <= EVERY_LINK_UP_TO:
        return list(combinations(range(n), 2)), []
    if not 1 < len(members) <= BUNDLED_UP_TO:
        return _fastest(speed, np.arange(n)), []
    links = [
        pair
        for inside in members.values()
        for pair in (combinations(inside.tolist(), 2) if len(inside) <= WHOLE_REGION_UP_TO else _fastest(speed, inside))
    ]
    between = list(combinations(range(len(members)), 2))
    if len(members) > FEW_REGIONS:
        of_regions = list(members.values())
        medians = np.array([[np.median(speed[np.ix_(a, b)]) for b in of_regions] for a in of_regions])
        between = _fastest(medians, np.arange(len(of_regions)))
    return links, between


def _fastest(speed: FloatArray, some: IntArray) -> list[Pair]:
    """Return the pairs of each device or region with the ``FASTEST`` others to which it has the fastest links."""
    within = speed[np.ix_(some, some)]
    # Otherwise each device would be its own nearest.
    np.fill_diagonal(within, -1.0)
    nearest = np.argsort(-within, axis=1, kind="stable")[:, : min(FASTEST, len(some) - 1)]
    # Two devices may be nearest to each other, but get one line.
    pairs = {(min(i, j), max(i, j)) for i, row in zip(some, some[nearest], strict=True) for j in row}
    return sorted((int(i), int(j)) for i, j in pairs)


def _between(topology: Topology, pairs: list[Pair], ends: list[IntArray] | None = None) -> list[list[float]]:
    """Return the links of ``network_of`` for pairs of devices, or its bundles for pairs of regions.

    ``ends`` are the devices of each region. None if the pairs are devices.
    """
    if not pairs:
        return []
    a, b = np.array(pairs).T
    ms, gbps = to_ms(topology.latency_s), to_gbps(topology.bandwidth_bytes_per_s)
    if ends is not None:
        ms, gbps = (
            np.array([[np.median(each[np.ix_(one, other)]) for other in ends] for one in ends]) for each in (ms, gbps)
        )
    # Bandwidths differ by powers of ten: on a linear scale, all but the fastest would look alike.
    logs = np.log10(np.minimum(gbps[a, b], gbps[b, a]))
    spread = float(np.ptp(logs))
    # If all are equal, none is strong or weak.
    strength = (logs - logs.min()) / spread if spread > 0 else np.full(len(pairs), 0.5)
    columns = np.column_stack([ms[a, b], gbps[a, b], ms[b, a], gbps[b, a]])
    return [
        [i, j, round(share, 3), *(float(f"{value:.4g}") for value in row)]
        for (i, j), share, row in zip(pairs, strength.tolist(), columns.tolist(), strict=True)
    ]


def layers_of(plan: Plan) -> list[str]:
    """Return ``layers 4 to 6`` for each stage, counting blocks from 1. Empty texts if the job has no model."""
    counts = plan.blocks_per_stage
    if counts is None:
        return [""] * plan.job.n_stages
    ends = accumulate(counts)
    return [
        f"layer {end}" if n == 1 else f"layers {end - n + 1} to {end}" if n else "no block"
        for n, end in zip(counts, ends, strict=True)
    ]


NO_EDGE = -1
NO_GROUP = -1


class GroupsView(View):
    """Draws the groups as columns in path order, one of the steps (a) to (e), or the weights between any two groups.

    With more than 16 groups, steps (d) and (e) are drawn as the matrix of weights, too.

    Clicking a device, a group or an edge selects it. The edge from stage ``s`` to ``s + 1`` is ``selected_edge`` ``s``
    and opens its matching. Any other edge is ``other_edge``. Dragging a device sends ``{"kind": "lift", "device"}``
    when it starts, and ``{"kind": "drop", "device", "partner"}`` or ``{..., "stage"}`` when it ends. The panel then
    sets ``offers`` or shows another plan. Control-Z sends ``undo``, with Shift ``redo``.
    """

    groups = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"stage", "devices", "cost_s"} of each stage, in stage order. cost_s is its synchronisation in seconds.

    Optional are "letter", "layers", "regions", "gpus" (each device's GPU), and "device_s" (the seconds that each
    device spends on it).
    """
    weights = traitlets.List(traitlets.List()).tag(sync=True)
    """(S, S) seconds between any two groups, symmetric."""
    matchings = traitlets.List(traitlets.List()).tag(sync=True)
    """For each stage but the last, the pairs [device, device, seconds] with the devices of the next stage.

    A pair may also hold the seconds there and the seconds back.
    """
    cost = traitlets.Dict().tag(sync=True)
    """The parts of the communication cost, as ``cost_of`` returns them. If empty, the sum is not drawn."""
    idle = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the devices that the plan leaves out."""
    network = traitlets.Dict().tag(sync=True)
    """Places of the devices and the links to draw, as ``network_of`` returns them. If empty, devices are on a
    circle."""
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
    """Two selected stages that are not neighbours. Empty for none."""
    other_matching = traitlets.List(traitlets.List()).tag(sync=True)
    """The matching of ``other_edge``, as in ``matchings``."""
    offers = traitlets.Dict().tag(sync=True)
    """The cost of every other place of one device, as ``hand_moves.offers`` returns it."""
    can_move = traitlets.Bool(False).tag(sync=True)
    """True if a dragged device can be dropped elsewhere."""
    height = traitlets.Int(360).tag(sync=True)
    """Pixels. 0 fills the parent element."""
    _plan: Plan | None = None
    _topology: Topology | None = None
    """The topology that ``network`` was made from."""

    def show(self, plan: Plan | None) -> None:
        """Draw a plan. None empties the view. The step stays, and so does the selection as far as the plan has it."""
        # In one message, or the page would draw new groups with the old plan's weights.
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
            # Finding the places of a large network's devices takes time, and most new plans are for the same network.
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
