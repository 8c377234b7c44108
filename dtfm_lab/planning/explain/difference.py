"""The difference between two plans: which devices moved, and how that changed the objective.

Plans for the iteration time or the price are compared by that quantity. Their stages differ in kind: the first has the
embedding, the last the head. A device has therefore moved if the number of its stage changed.

In plans for the communication cost, groups have no names and the order of stages has no direction: the same groups in
reverse cost the same. The stages of the two plans are therefore matched first, so that matched stages have as many
devices in common as possible. Of equally good matchings, the one that changes the order of stages least wins, forwards
or backwards. A device has moved only if its earlier and later stage are not matched. A pipeline and its reverse count
as the same.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import set_words
from dtfm_lab.domain.plan import CostBreakdown, Plan
from dtfm_lab.domain.units import IntArray, counted, format_s, money, plain_rows
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.evaluate import placed, reshaped
from dtfm_lab.planning.explain.iteration_analysis import IterationAnalysis
from dtfm_lab.planning.explain.sentences import same

if TYPE_CHECKING:
    import pandas as pd

CHANGES = {
    "stays": "stay",
    "moved": "changed stage",
    "gone idle": "went idle",
    "come in": "came in",
    "idle": "stay idle",
    "removed": "left the network",
    "added": "joined the network",
}
"""The possible changes of a device, each with the verb for a sentence about it."""
PATH = {"device": "computations", "link": "messages", "synchronisation": "averages of gradients"}
"""Key of ``IterationAnalysis.by_class`` -> words for that part of the critical path."""


@dataclass(frozen=True, eq=False, repr=False)
class Difference:
    """What changed from one plan to another. Devices are identified by name."""

    before: Plan
    after: Plan

    @property
    def objective(self) -> str:
        """The later plan's objective. If that is the communication cost, the earlier plan's."""
        return self.before.objective if self.after.objective == "communication" else self.after.objective

    @property
    def by_seconds(self) -> bool:
        """True if either plan is for the iteration time or the price, and both were simulated."""
        return self.objective != "communication" and None not in (self.before.iteration_s, self.after.iteration_s)

    @cached_property
    def carried_plan(self) -> Plan | None:
        """The earlier plan on the later network, simulated. None if it does not fit there, if one of its devices is
        gone, or if the network is the same.

        For the communication cost see ``carried``.
        """
        if self._gone or not self._network_changed:
            return None
        return placed(self.before, self._kept_grid, self.before.job, self.after.topology)

    @cached_property
    def matched_stages(self) -> dict[int, int]:
        """Maps each stage of the later plan to its matching stage of the earlier plan.

        Only stages that share a device are matched. In plans for the iteration time or the price, matching stages have
        the same number.
        """
        # In plans for the iteration time, a stage's number means something: the first stage holds the first layers.
        if self.by_seconds:
            both = zip(self.before.stages, self.after.stages, strict=False)
            return {s: s for s, (was, now) in enumerate(both) if set(was) & set(now)}
        overlap = np.array([[len(set(a) & set(b)) for b in self.before.stages] for a in self.after.stages])
        i, j = (np.arange(n) for n in overlap.shape)
        tie = 1.0 / (2 * len(overlap) * max(overlap.shape))  # all ties together weigh less than one shared device
        chosen: list[tuple[float, list[tuple[int, int]]]] = []
        # Forwards and backwards, since the communication cost is the same for a path and its reverse.
        for position in (j, j[::-1]):
            value = overlap - tie * np.abs(i[:, None] - position)
            rows, columns = scipy.optimize.linear_sum_assignment(-value)
            chosen.append((float(value[rows, columns].sum()), list(zip(rows.tolist(), columns.tolist(), strict=True))))
        _, pairs = max(chosen, key=lambda choice: choice[0])
        return {after: before for after, before in pairs if overlap[after, before]}

    @cached_property
    def devices(self) -> pd.DataFrame:
        """One row per device of either network.

        Columns:

        - device
        - stage_before and stage_after, by each plan's own numbers (missing if idle or absent)
        - matched_stage: the earlier plan's stage that stage_after is matched to
        - change: stays, moved, gone idle, come in, idle, removed or added
        """
        import pandas as pd  # takes a while to load

        before, after = _stage_of(self.before), _stage_of(self.after)
        old, new = (dict.fromkeys(plan.topology.names) for plan in (self.before, self.after))
        rows = []
        for name in old | new:
            was, now = before.get(name), after.get(name)
            matched = None if now is None else self.matched_stages.get(now)
            if name not in new:
                change = "removed"
            elif name not in old:
                change = "added"
            elif was is None or now is None:
                change = "idle" if was == now else "come in" if was is None else "gone idle"
            else:
                change = "stays" if matched == was else "moved"
            rows.append((name, was, now, matched, change))
        frame = pd.DataFrame(rows, columns=["device", "stage_before", "stage_after", "matched_stage", "change"])
        # nullable integers, because an idle device has no stage
        return frame.astype(dict.fromkeys(["stage_before", "stage_after", "matched_stage"], "Int64"))

    @cached_property
    def new_pipelines(self) -> list[list[str]]:
        """Pipelines of the later plan, as device names, that the earlier plan has in neither direction."""
        known = {tuple(line) for pipeline in self.before.pipelines for line in (pipeline, pipeline[::-1])}
        return [pipeline for pipeline in self.after.pipelines if tuple(pipeline) not in known]

    @property
    def choices(self) -> dict[str, tuple[object, object]]:
        """What else differs between the plans: {words: (before, after)}. It compares blocks, micro-batches, schedule,
        warm-ups, checkpointing, tensor parallelism and sharding."""
        was, now = _chosen(self.before), _chosen(self.after)
        return {what: (was[what], now[what]) for what in was if was[what] != now[what]}

    @property
    def changed_links(self) -> int:
        """Number of directed links between devices of both networks whose latency or bandwidth changed."""
        old, new = self.before.topology, self.after.topology
        there = set(new.names)
        common = [name for name in old.names if name in there]
        # Without a common device there are no links to compare.
        if not common:
            return 0
        old, new = old.subset(common), new.subset(common)
        changed = (old.latency_s != new.latency_s) | (old.bandwidth_bytes_per_s != new.bandwidth_bytes_per_s)
        return int(changed.sum())

    @property
    def same_messages(self) -> bool:
        """True if both jobs have the same shape and messages of the same size."""
        return _messages(self.before.job) == _messages(self.after.job)

    @cached_property
    def carried(self) -> CostBreakdown | None:
        """Cost of the earlier placement on the later network, for the later job in the earlier shape.

        If the later job does not allow that shape, the earlier job is priced. None if one of the devices was removed.
        The change from ``before`` to ``carried`` is due to network and job. The change from ``carried`` to ``after`` is
        due to moved devices.
        """
        if self._gone:
            return None
        try:
            job = reshaped(self.after.job, self.before.job.n_stages, self.before.job.n_replicas)
        except JobError:
            job = self.before.job
        return price_placement(self.after.topology, job, self._kept_grid)

    @cached_property
    def parts(self) -> pd.DataFrame:
        """The cost by part, in the columns before_s, carried_s (see ``carried``; for the iteration, ``carried_plan``),
        after_s and change_s (after minus before).

        Rows: the iteration (if ``by_seconds``), data parallel, pipeline, total.
        """
        import pandas as pd  # takes a while to load

        rows: dict[str, tuple[float | None, float | None, float | None]] = {}
        if self.by_seconds:
            kept = None if self.carried_plan is None else self.carried_plan.iteration_s
            rows["iteration"] = (self.before.iteration_s, kept, self.after.iteration_s)
        for part, what in (("data parallel", "data_parallel_s"), ("pipeline", "pipeline_s"), ("total", "total_s")):
            carried = None if self.carried is None else getattr(self.carried, what)
            rows[part] = getattr(self.before.cost, what), carried, getattr(self.after.cost, what)
        frame = pd.DataFrame.from_dict(rows, orient="index", columns=["before_s", "carried_s", "after_s"], dtype=float)
        frame.index.name = "part"
        frame["change_s"] = frame["after_s"] - frame["before_s"]
        return frame

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the table of ``devices``."""
        return self.devices.copy()

    @property
    def text(self) -> str:
        """A few sentences about which devices moved and what that changed."""
        lines = [self._devices_text(), self._network_text()]
        if not self.by_seconds:
            lines += self._cost_text()
        if None not in (self.before.iteration_s, self.after.iteration_s):
            lines += self._value_text()
        return "\n".join(filter(None, lines))

    def summary(self) -> dict[str, Any]:
        """Return the difference in plain types, as ``dtfm-lab compare --json`` prints it."""
        return {
            "text": self.text,
            "objective": self.objective,
            "iteration_before_s": self.before.iteration_s,
            "iteration_after_s": self.after.iteration_s,
            "cost_before_s": self.before.cost.total_s,
            "cost_carried_s": None if self.carried is None else self.carried.total_s,
            "cost_after_s": self.after.cost.total_s,
            "changed_links": self.changed_links,
            "same_messages": self.same_messages,
            "matched_stages": {str(after): before for after, before in sorted(self.matched_stages.items())},
            "new_pipelines": self.new_pipelines,
            "changes": {change: self._named(change) for change in CHANGES},
            "devices": plain_rows(self.devices),
            "parts": plain_rows(self.parts.reset_index()),
        }

    def _named(self, change: str) -> list[str]:
        return [str(name) for name in self.devices.loc[self.devices["change"] == change, "device"]]

    def _in_words(self, change: str, names: list[str]) -> str:
        """Describe the devices of one change by host or region."""
        # only the earlier network knows a device that was removed
        topology = (self.before if change == "removed" else self.after).topology
        return set_words(topology.devices, map(topology.index, names))

    def _devices_text(self) -> str:
        phrases = []
        for change, verb in CHANGES.items():
            if change not in ("stays", "idle") and (names := self._named(change)):
                phrases.append(f"{counted(len(names), 'device')} {verb} ({self._in_words(change, names)})")
        n_new = len(self.new_pipelines)
        pipelines = f"{n_new} of {counted(self.after.job.n_replicas, 'pipeline')} {'is' if n_new == 1 else 'are'} new"
        sizes = [f"{plan.job.n_stages} x {plan.job.n_replicas}" for plan in (self.before, self.after)]
        shape = "" if sizes[0] == sizes[1] else f"From {sizes[0]} to {sizes[1]}. "
        reordered = not phrases and not n_new and self.before.stages != self.after.stages
        none = "No device changed its stage" + " (the same stages in another order or numbering)" * reordered
        return f"{shape}{'; '.join(phrases) or none}; {pipelines}."

    def _network_text(self) -> str:
        links = f"{counted(n, 'link')} of the network changed." if (n := self.changed_links) else ""
        jobs = "" if self.same_messages else "The jobs differ in shape or in what they send."
        return " ".join(filter(None, [links, jobs]))

    def _cost_text(self) -> list[str]:
        before, after = self.before.cost, self.after.cost
        lines = [
            f"The cost {_rose_or_fell(before.total_s, after.total_s)}: "
            f"data parallel {_rose_or_fell(before.data_parallel_s, after.data_parallel_s)}, "
            f"pipeline {_rose_or_fell(before.pipeline_s, after.pipeline_s)}."
        ]
        # The earlier placement has no price on a network that lacks its devices.
        if self.carried is None:
            gone = self._gone[0]
            return [
                *lines,
                f"The network's part is unknown: the earlier placement needs {gone}, which is gone.",
            ]
        if not same(self.carried.total_s, before.total_s):
            cause = "network" if self.same_messages else "network and job" if self._network_changed else "job"
            lines.append(
                f"The earlier placement, kept as it was, would now cost {format_s(self.carried.total_s)}: the "
                f"{cause} made {_change(self.carried.total_s - before.total_s)}, moving devices "
                f"{_change(after.total_s - self.carried.total_s)}."
            )
        return lines

    def _value_text(self) -> list[str]:
        """Return sentences about the seconds of the iteration, and about the dollars if the objective is the price."""
        before, after, kept = self.before, self.after, self.carried_plan
        assert before.iteration_s is not None
        assert after.iteration_s is not None
        lines = [f"The iteration {_rose_or_fell(before.iteration_s, after.iteration_s)}."]
        if self.objective == "price":
            was, now = (money(plan.price_per_billion_tokens or 0.0) for plan in (before, after))
            lines.insert(0, f"A billion {after.job.counted} cost {now}, before {was}.")
        if kept is not None and kept.iteration_s is not None:
            lines.append(f"The earlier plan, kept as it was, would now take {format_s(kept.iteration_s)}.")
        lines.append(self._path_text())
        if changed := [f"{what} {of[0]} to {of[1]}" for what, of in self.choices.items()]:
            lines.append(f"The plan also changed: {', '.join(changed)}.")
        return lines

    def _path_text(self) -> str:
        """Return a sentence on the part of the critical path that changed most: computations, messages or averaging.

        It names the device or link with the largest share of that part in each plan. Empty if nothing changed.
        """
        was, now = IterationAnalysis(self.before), IterationAnalysis(self.after)
        what = max(was.by_class, key=lambda each: abs(now.by_class[each] - was.by_class[each]))
        # Nothing on the path changed, so no part is to blame.
        if same(was.by_class[what], now.by_class[what]):
            return ""
        took = []
        for one in (was, now):
            parts = one.parts("device" if what == "device" else "link")
            slowest = f", most on {parts[0].name.replace('->', '→')}" if parts else ""
            took.append(format_s(one.by_class[what]) + slowest)
        return f"On the critical path, {PATH[what]} took {took[0]}; now they take {took[1]}."

    @property
    def _gone(self) -> list[str]:
        """Names of the devices of the earlier placement that the later network lacks."""
        return sorted(set(_stage_of(self.before)) - set(self.after.topology.names))

    @property
    def _kept_grid(self) -> IntArray:
        """(S, D) device indices of the earlier placement on the later network. Fails if one of its devices is gone."""
        return np.array([[self.after.topology.index(name) for name in group] for group in self.before.stages])

    @property
    def _network_changed(self) -> bool:
        return self.before.topology.fingerprint != self.after.topology.fingerprint

    def __repr__(self) -> str:
        return f"<Difference of {self.before!r} and {self.after!r}>"

    def _repr_html_(self) -> str:
        sentences = "".join(f"<p>{html.escape(line)}</p>" for line in self.text.splitlines())
        return sentences + str(self.parts.to_html())


def _stage_of(plan: Plan) -> dict[str, int]:
    return {name: stage for stage, group in enumerate(plan.stages) for name in group}


def _chosen(plan: Plan) -> dict[str, object]:
    job, counts = plan.job, plan.job.microbatch_counts
    return {
        "blocks": plan.blocks_per_stage,
        "shares": "equal" if len(set(counts)) == 1 else counts,
        "micro-batches of": job.microbatch,
        "schedule": job.schedule_name,
        "warm-up forwards": job.warmups,
        "checkpointing": job.checkpoints,
        "tensor parallelism of": job.tensor_parallel,
        "sharding": job.sharding,
    }


def _messages(job: Job) -> tuple[float, ...]:
    return job.n_stages, job.n_replicas, job.gradient_bytes, job.hop_bytes


def _rose_or_fell(before_s: float, after_s: float) -> str:
    if same(before_s, after_s):
        return f"stays at {format_s(after_s)}"
    return f"{'rose' if after_s > before_s else 'fell'} from {format_s(before_s)} to {format_s(after_s)}"


def _change(seconds: float) -> str:
    return f"{format_s(abs(seconds))} {'more' if seconds >= 0 else 'less'}"
