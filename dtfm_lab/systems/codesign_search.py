"""Finds what makes a network compute-bound: each knob alone, by doubling and bisection, then batch against averages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import plan as search_plan
from dtfm_lab.simulation.memory import memory
from dtfm_lab.systems.codesign import CoDesign, Design, Turned
from dtfm_lab.systems.compute_share import Share, share_of
from dtfm_lab.systems.knobs import KNOBS
from dtfm_lab.systems.strategy import Budget
from dtfm_lab.systems.variations import Variation

BISECTIONS = 12
"""Most halvings between a value that does not suffice and one that does."""
EVERY = (1, 2, 4, 8, 16, 32, 64)
"""Iterations between two averages on the frontier."""


def stream_codesign(
    plan: Plan, target: float, names: Sequence[str], budget: Budget, *, replan: bool = False
) -> Iterator[CoDesign]:
    """The answer so far, after every design that was evaluated.

    Each knob is doubled until the target is reached, or up to its end; the least value that reaches it is then found by
    bisection, as if more of a knob never meant a smaller share. Where the plan suffices as it is, batch and bandwidth
    are halved until it does not. All keep the plan's devices, shape and schedule; with ``replan`` a search from there
    may choose another plan, of which the faster is taken.
    """
    state = _State(plan, target, budget, replan)
    state.base = state.design({})
    yield state.seen("the job as it is")
    for name in names:
        yield from state.turn(KNOBS[name](plan))
    if {"batch", "every"} <= set(names):
        yield from state.trade(rounded="compression" in names)
    state.finished = True
    yield state.seen("")


@dataclass
class _State:
    plan: Plan
    target: float
    budget: Budget
    replan: bool
    base: Design | None = None
    turned: list[Turned] = field(default_factory=list)
    frontier: list[Design] = field(default_factory=list)
    done: int = 0
    finished: bool = False

    def seen(self, latest: str) -> CoDesign:
        """The answer so far."""
        assert self.base is not None, "it is evaluated first"
        return CoDesign(
            plan=self.plan,
            target=self.target,
            base=self.base,
            turned=tuple(self.turned),
            frontier=tuple(self.frontier),
            replanned=self.replan,
            done=self.done,
            latest=latest,
            finished=self.finished,
        )

    def design(self, settings: dict[str, float]) -> Design:
        """The plan with these knobs turned. Raises LabError where that cannot be."""
        held = self.plan
        for name, value in settings.items():
            held = KNOBS[name](self.plan).on(held, value)
        share = self._share(held)
        if self.replan and settings:
            other = self._planned(held)
            if memory(other).fits and (there := self._share(other)).iteration_s < share.iteration_s:
                held, share = other, there
        report = memory(held)
        self.done += 1
        sentence = "" if report.fits else report.sentence
        return Design(settings=settings, plan=held, share=share, fits=report.fits, memory=sentence)

    def _planned(self, held: Plan) -> Plan:
        """The plan of a search that begins with this one, in any shape."""
        budget = self.budget
        return search_plan(
            held.topology,
            held.job.with_fields(n_stages=None, n_replicas=None, schedule=None),
            start=held,
            objective="iteration",
            seed=budget.seed,
            queueing=budget.queueing,
            steps=budget.steps,
            seconds=budget.seconds if budget.steps is None else None,
        )

    def _share(self, plan: Plan) -> Share:
        return share_of(plan, efficiency=self.budget.efficiency, queueing=self.budget.queueing)

    def turn(self, knob: Variation) -> Iterator[CoDesign]:
        """One knob alone: by steps until the target lies between two values, then by halves of what is between them."""
        assert self.base is not None, "it is evaluated first"
        designs, reason, steps = [self.base], "", list[float]()
        suffices = self.base.computing >= self.target
        try:
            steps = knob.halved if suffices else knob.doubled
        except LabError as error:
            reason = str(error)
        self.turned.append(Turned(knob=knob, designs=designs, reason=reason))
        inside, outside = (knob.own, None) if suffices else (None, knob.own)
        values, bisections = iter(steps), 0
        while bisections < BISECTIONS:
            if inside is None or outside is None:
                value = next(values, None)
            else:
                value, bisections = knob.middle(outside, inside), bisections + 1
            if value is None:
                break
            try:
                designs.append(self.design({knob.name: value}))
            except LabError as error:
                reason = reason if bisections else str(error)
                break
            self.turned[-1] = Turned(knob=knob, designs=designs)
            yield self.seen(knob.text(value))
            if designs[-1].computing >= self.target:
                inside = value
            else:
                outside = value
        self.turned[-1] = Turned(knob=knob, designs=designs, reason=reason)

    def trade(self, *, rounded: bool) -> Iterator[CoDesign]:
        """The least batch that reaches the target for each number of iterations between two averages.

        Batches are the plan's own times powers of two; messages are as they are and, if ``rounded``, the smallest.
        """
        batch, every = KNOBS["batch"](self.plan), KNOBS["every"](self.plan)
        smallest = KNOBS["compression"](self.plan).doubled[-1:] if rounded else []
        sizes = sorted([*batch.halved, batch.own, *batch.doubled])
        if not every.doubled:
            return
        for compression in (None, *smallest):
            least = len(sizes)
            for times in EVERY:
                interval = every.own * times
                settings = {} if times == 1 else {"every": interval}
                if compression is not None:
                    settings["compression"] = compression
                best: Design | None = None
                low, high = 0, least
                while low < high:
                    middle = (low + high) // 2
                    try:
                        size = {} if sizes[middle] == batch.own else {"batch": sizes[middle]}
                        one = self.design({**size, **settings})
                    except LabError:
                        return
                    yield self.seen(f"{batch.text(sizes[middle])}, {every.text(interval)}")
                    if one.computing >= self.target:
                        best, high = one, middle
                    else:
                        low = middle + 1
                if best is not None:
                    least = high
                    self.frontier.append(best)
                    yield self.seen("")
