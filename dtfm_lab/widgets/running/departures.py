"""A device that is taken off the network during a run leaves that run for good, and the run follows the next plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dtfm_lab.domain.errors import LabError
from dtfm_lab.planning.moving import moves
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.widgets.lab_state import LabState


class Departures:
    """Tells the run who has left, and sends it the first plan that is made for who is there then.

    A device that is drawn anew is taken in the same way. Other edits change no run, nor do these where only a part of
    the plan runs.
    """

    def __init__(self, lab_state: LabState, tell: Callable[[str, str], None], failed: Callable[[str], None]) -> None:
        """``tell(what, device)`` writes a line of what happened; ``failed`` reports an error."""
        self._lab_state, self._tell, self._failed = lab_state, tell, failed
        self._run: Run | None = None
        self._left: set[str] = set()
        """Who has left since the plan that the run was told last."""
        self._there: set[str] = set()
        """Who is there by that plan's network."""
        lab_state.observe(lambda _: self._look(), "topology")
        lab_state.observe(lambda _: self._follow(), "plan")

    def watch(self, run: Run | None) -> None:
        """Look after this run; None for one that nobody may disturb."""
        topology = self._lab_state.topology
        self._run = None if run is None or run.spec.subplan is not None else run
        self._left, self._there = set(), set() if topology is None else set(topology.names)

    def _look(self) -> None:
        run, topology = self._run, self._lab_state.topology
        if run is None or topology is None or not run.running:
            return
        if topology.name != run.spec.plan.topology.name:
            self._run = None  # another network was opened, which says nothing of the run's devices
            return
        for name in sorted(run.ranks.keys() - set(topology.names) - self._left):
            self._left.add(name)
            self._try(partial(run.leave, name))
            self._tell("left for good: the run waits for a plan without it", name)

    def _follow(self) -> None:
        run, state = self._run, self._lab_state
        if run is None or state.plan is None or state.plan_is_stale or not run.running:
            return
        if (names := set(state.plan.topology.names)) == self._there:
            return
        self._there, self._left = names, set()
        self._try(partial(self._send, run))

    def _send(self, run: Run) -> None:
        plan, before = self._lab_state.chosen_plan, run.spec.plan
        assert plan is not None, "it was made"
        living = [name for group in before.stages for name in group if name in plan.topology.names]
        run.follow(plan, self._lab_state.schedule, pause_s=moves(before, plan, living).move_s)

    def _try(self, command: Callable[[], None]) -> None:
        try:
            command()
        except LabError as error:
            self._failed(str(error))
