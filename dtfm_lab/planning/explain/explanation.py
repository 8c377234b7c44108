"""Why a plan costs what it costs, in words, as tables and as JSON: its communication cost or its iteration."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dtfm_lab.domain.options import lists_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.planning.explain import iteration_sentences, sentences
from dtfm_lab.planning.explain.communication import CostAnalysis, group_bottlenecks, hop_bottlenecks
from dtfm_lab.planning.explain.iteration_analysis import IterationAnalysis, analysed
from dtfm_lab.planning.explain.worth import Worth, stream_worth, worth_table
from dtfm_lab.simulation.sensitivity import WHAT, SensitivityGain, gains, sensitivity_table
from dtfm_lab.simulation.task_runner import table_of

if TYPE_CHECKING:
    import pandas as pd


class Explanation(CostAnalysis):
    """A plan's cost analysis with sentences (``text``, ``why``), tables and JSON (``summary``).

    ``worth`` says what each device saves, ``sensitivity`` what a faster link or device would save. A plan for the
    iteration time or the price is explained by its simulated iteration first, then by its communication cost.
    """

    @cached_property
    def iteration(self) -> IterationAnalysis:
        """What limits the simulated iteration. Raises PlanError for a job without a model."""
        return analysed(self.plan)

    @lists_options(())
    def worth(
        self,
        *,
        planner: str = "evolutionary",
        seed: int = 0,
        steps: int | None = None,
        seconds: float | None = None,
        progress: Callable[[Worth], object] | None = None,
    ) -> pd.DataFrame:
        """Return a table of what each device is worth: seconds without it minus seconds with it in use. Both are
        planned again.

        For a job with a model, these are seconds of an iteration, and every search may change the shape. For a job with
        message sizes only, they are seconds of the communication cost, and the shape is kept. Without ``steps`` and
        ``seconds``, every search takes 4 steps. ``progress`` is called with every row, which has both plans. Ctrl-C
        keeps the rows so far. See ``explain.worth``.
        """
        return table_of(
            stream_worth(self.plan, planner, seed=seed, steps=steps, seconds=seconds), worth_table, progress
        )

    @lists_options(())
    def sensitivity(
        self,
        schedule: str | Schedule | None = None,
        *,
        factor: float = 1.1,
        what: str | Sequence[str] = WHAT,
        progress: Callable[[SensitivityGain], object] | None = None,
        like: Trace | None = None,
        queueing: str | None = None,
        efficiency: float | None = None,
    ) -> pd.DataFrame:
        """Return the gain from each faster link or device, largest first, each with a sentence. Schedule and placement
        are kept. Some rows improve several together: all links between two regions or within one, all links between
        hosts, and all devices with the same GPU.

        Bandwidth and computing speed are multiplied by ``factor``, latency is divided by it. ``what`` is any of
        ``bandwidth``, ``latency`` and ``compute``. ``progress`` is called with every row. Ctrl-C keeps the rows so far.
        ``like``, ``queueing`` and ``efficiency`` are as in ``simulate``.
        """
        how: dict[str, Any] = {"like": like, "queueing": queueing, "efficiency": efficiency}
        return table_of(gains(self.plan, schedule, factor=factor, what=what, **how), sensitivity_table, progress)

    @property
    def by_seconds(self) -> bool:
        """True if the plan minimises the seconds or the dollars of an iteration, not its communication cost."""
        return self.plan.objective != "communication" and self.plan.job.model is not None

    def to_frame(self, what: str = "devices") -> pd.DataFrame:
        """Return one of these tables:

        * ``devices``, ``groups`` or ``hops``: by the communication cost
        * ``iteration``: the seconds and the memory of each device
        * ``critical``: the parts of the critical path

        Raises UnknownName for another name.
        """
        import pandas as pd  # takes a while to load

        tables: dict[str, Callable[[], pd.DataFrame]] = {
            "devices": lambda: self.devices.copy(),
            "groups": lambda: pd.json_normalize([group.summary() for group in self.groups], sep="_"),
            "hops": lambda: pd.json_normalize([hop.summary() for hop in self.hops], sep="_"),
            "iteration": lambda: self.iteration.devices.copy(),
            "critical": lambda: self.iteration.critical.copy(),
        }
        if what not in tables:
            raise unknown("table of an explanation", what, tables)
        return tables[what]()

    @property
    def text(self) -> str:
        """A few sentences on the communication cost: what limits it, the cheapest swap and the bound. If
        ``by_seconds``, they are about the iteration instead, with one on the communication cost at the end."""
        if not self.by_seconds:
            return sentences.of_plan(self)
        return f"{iteration_sentences.of_iteration(self.iteration)}\n{sentences.of_cost_alone(self)}"

    def why(self, device: str | int) -> str:
        """Explain one device in a few sentences: its place, its costs and its other places. If ``by_seconds``, it gives
        its seconds and its memory first."""
        chosen = self.plan.topology.at(device)
        if not self.by_seconds:
            return sentences.of_device(self, chosen)
        seconds = iteration_sentences.of_device(self.iteration, chosen)
        return f"{seconds}\nBy the communication cost alone: {sentences.of_device(self, chosen)}"

    def summary(self, device: str | int | None = None) -> dict[str, Any]:
        """Return the explanation of the plan, or of one device, in plain types, as ``dtfm-lab explain --json`` prints
        it."""
        if device is not None:
            row = self.service.iloc[[self.plan.topology.at(device)]]
            return {**plain_rows(row)[0], "text": self.why(device), "places": plain_rows(self.places(device))}
        cost, hop, names = self.plan.cost, self.binding_hop, self.plan.topology.names
        best = self.best_swap
        exchanged = best and {"devices": [names[best.device], names[best.partner]], "cost_after_s": best.cost_s}
        return {
            "text": self.text,
            "cost_s": cost.total_s,
            "data_parallel_s": cost.data_parallel_s,
            "pipeline_s": cost.pipeline_s,
            "latency_s": self.latency_s,
            "bandwidth_s": cost.total_s - self.latency_s,
            "lower_bound_s": self.plan.lower_bound_s,
            "gap": self.plan.gap,
            "repaired_s": self.repaired_s,
            "binding_stage": self.binding_group.stage,
            "binding_hop": None if hop is None else [hop.stage, hop.stage + 1],
            "is_local_optimum": self.is_local_optimum,
            "best_swap": exchanged,
            "groups": [group.summary() for group in self.groups],
            "hops": [hop.summary() for hop in self.hops],
            "devices": plain_rows(self.devices),
            "iteration": self.iteration.summary() if self.by_seconds else None,
        }

    def __repr__(self) -> str:
        return f"<Explanation of {self.plan!r}>"

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(line)}</p>" for line in self.text.splitlines())


def explain(plan: Plan) -> Explanation:
    """Analyse a plan: what limits its cost, and what every swap of devices would cost."""
    pair = pair_costs(plan.topology, plan.job)
    return Explanation(plan=plan, groups=group_bottlenecks(plan, pair), hops=hop_bottlenecks(plan, pair), pair=pair)
