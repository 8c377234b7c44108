"""What is shown of a search for seconds or dollars: the best plan of each shape that it has begun, and the newest."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial

from dtfm_lab.domain.job import Job
from dtfm_lab.planning.iteration.candidate import chosen_job
from dtfm_lab.planning.iteration.shape_searches import KernelPlan, ShapeSearch, ShapeSearches
from dtfm_lab.planning.problem import SHOWN, Individual, Population

CHECKPOINTED = {
    "none": "",
    "selective": ", attention computed again",
    "block": ", blocks computed again",
    "stage": ", stages computed again",
}


class ShownShapes:
    """Numbers the plans of a search in the order in which they are first shown."""

    def __init__(self, shape_searches: ShapeSearches, job: Job) -> None:
        self._shape_searches, self._job = shape_searches, job
        self._tried: deque[tuple[ShapeSearch, KernelPlan]] = deque(maxlen=SHOWN)
        self._known: dict[KernelPlan, Individual] = {}
        self._newest: dict[ShapeSearch, Individual] = {}
        """The best that was shown last of each shape: the parent of what follows it."""
        self._n_shown = 0

    def tried(self, shape_search: ShapeSearch, found: KernelPlan, operator: str) -> KernelPlan:
        """The same plan with what it was made from; kept to be shown for as long as it is among the newest."""
        found = replace(found, operator=operator)
        self._tried.append((shape_search, found))
        return found

    def population(self, best: tuple[ShapeSearch, KernelPlan]) -> Population:
        """The best of all, then those of the other shapes and the newest, the cheapest first, as the kernels priced
        them."""
        bests = [
            (shape_search, shape_search.best)
            for shape_search in self._shape_searches
            if shape_search is not best[0] and shape_search.best is not None
        ]
        bests = sorted((one for one in bests if one[1].lacks == 0), key=_value)
        kept = bests[: SHOWN - 1]
        known = {found for _, found in (best, *kept)}
        newest = [one for one in reversed(self._tried) if one[1].lacks == 0 and one[1] not in known]
        others = sorted([*kept, *newest[: SHOWN - 1 - len(kept)]], key=_value)
        self._known = {found: self._individual(shape_search, found) for shape_search, found in (best, *others)}
        return Population(individuals=tuple(self._known.values()), rule=_rule(len(bests) + 1))

    def _individual(self, shape_search: ShapeSearch, found: KernelPlan) -> Individual:
        if found in self._known:
            return self._known[found]
        before = self._newest.get(shape_search)
        s, r = shape_search.shape
        estimated = "" if found.judged else "; its cost is estimated"
        checkpointed = CHECKPOINTED[shape_search.checkpointing]
        one = Individual(
            number=self._n_shown,
            grid=shape_search.grid(found),
            cost_s=found.value,
            operator=found.operator,
            words=f"{s} x {r}, micro-batches of {shape_search.microbatch}{checkpointed}{estimated}",
            parents=() if before is None or found.operator != "reheated" else (before.childless,),
            is_estimate=not found.judged,
            chosen=partial(  # not shape_search.job, which would keep the whole search for as long as this is shown
                chosen_job,
                self._job,
                found.blocks,
                found.shares,
                found.ahead,
                shape_search.microbatch,
                shape_search.checkpointing,
            ),
        )
        self._n_shown += 1
        if found is shape_search.best:
            self._newest[shape_search] = one
        return one


def _rule(n_shapes: int) -> str:
    if n_shapes == 1:
        return (
            "Shown are the best, and the newest that were tried. Each is annealed; what it becomes is kept if better."
        )
    return (
        f"Shown are the best of each shape and micro-batch, of {n_shapes} that fit, and then the newest that were "
        "tried. The search anneals the shape that looks best, and gives none up."
    )


def _value(one: tuple[ShapeSearch, KernelPlan]) -> float:
    return one[1].value
