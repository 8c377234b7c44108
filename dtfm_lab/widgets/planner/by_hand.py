"""The mode By hand: the reader arranges the devices against the clock, the planner and the bound."""

import asyncio
from functools import partial
from typing import Any, NamedTuple

import ipywidgets as w

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.theme import count
from dtfm_lab.widgets.controls import button, classed, disable, menu, more_menu, seed_control, spacer
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.hand_game import BEGINNINGS, HandGame
from dtfm_lab.widgets.planner.short_searches import Reference, refer
from dtfm_lab.widgets.planner.teaching_panel import plan_of, stages_by_name
from dtfm_lab.widgets.tasks import begin, has_event_loop
from dtfm_lab.widgets.views.arrange import ArrangeView

NO_NETWORK = "Open or draw a network: you can then arrange its devices yourself."


class Best(NamedTuple):
    """The best result of a session on one network and shape."""

    score: float
    n_moves: int
    cost_s: float


class ByHandPanel:
    """Sets ``lab_state.shown_stages`` to the arrangement, and ``plan`` where it is taken over."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._report_error = partial(lab_state.report_error, "plan")
        self.game: HandGame | None = None
        self.reference: Reference | None = None
        self.bests: dict[tuple[str, int, int], Best] = {}
        """By the network's fingerprint and the shape."""
        self._is_shown = False
        self.board = classed(ArrangeView(self.swap, hint=NO_NETWORK), "dtfm-fill")
        self.anew = button("Deal anew", "", "Begin again", "auto")
        self.undo = button("Undo", "", "Take back the last exchange", "auto")
        self.hint = button("Show its next move", "", "The best single exchange", "auto")
        self.take = button("Take it over", "", "Make it the lab's plan; until then the plan at hand is kept", "auto")
        self.beginning = menu(
            "Begin",
            "230px",
            "45px",
            [("by chance", BEGINNINGS[0]), ("dealt evenly", BEGINNINGS[1])],
            "How the devices stand at first",
        )
        self.seed = seed_control("Seed", label="Chance", widths=("130px", "55px"))
        more = more_menu([self.beginning, self.seed], tooltip="How a game begins")
        self.bar: list[w.Widget] = [spacer(), more]
        foot = classed(w.HBox([self.undo, self.hint, spacer(), self.anew, self.take]), "dtfm-hand-foot")
        self.view = w.VBox([self.board, foot])
        self.anew.on_click(lambda _: self._deal_another())
        self.undo.on_click(lambda _: self._undo())
        self.hint.on_click(lambda _: self._ask())
        self.take.on_click(lambda _: begin(self._take_over(), self._report_error))
        for control in (self.beginning, self.seed):
            control.observe(lambda _: self.deal(), "value")
        lab_state.observe(lambda _: self._follow(), ["topology", "job"])
        self._show()

    def enter(self) -> None:
        """Begin to be shown; the first time on a network, a game is dealt."""
        self._is_shown = True
        if self.game is None:
            self.deal()
        self._show()

    def leave(self) -> None:
        """Stop to be shown; the map shows the plan again, and the game waits."""
        if not self._is_shown:
            return
        self._is_shown = False
        if self.game is not None:
            self._lab_state.shown_stages = {}
            self._lab_state.search_note = ""

    def deal(self) -> None:
        """Begin a game on the drawn network, in the plan's shape or the most square one."""
        topology, job, plan = self._lab_state.topology, self._lab_state.job, self._lab_state.plan
        self.game = None
        if topology is not None and job is not None:
            if plan is not None and not self._lab_state.plan_is_stale:
                job = plan.job
            try:
                job = job if job.shaped else job.fitted(len(topology))
                self.game = HandGame(topology, job, self.beginning.value, self.seed.value)
            except LabError as error:
                self.board.hint = str(error)
        else:
            self.board.hint = NO_NETWORK
        if self.game is not None and has_event_loop():
            begin(self._refer(self.game), self._report_error)
        self.board.hinted = []
        self._show()

    def swap(self, one: str, other: str) -> None:
        """Exchange two devices by name; one of them may be idle."""
        game = self.game
        if game is None:
            return
        try:
            game.swap(game.topology.index(one), game.topology.index(other))
        except LabError as error:
            self.board.note = str(error)
            return
        self.board.hinted = []
        self.board.note = ""
        self._keep_best(game)
        self._show()

    @property
    def sentence(self) -> str:
        """What the headline says."""
        game, reference = self.game, self.reference
        if game is None:
            return ""
        yours = f"{format_s(game.cost_s)} after {count(len(game.moves), 'move')}"
        if reference is None or not game.planner_s:
            return f"Beat the planner: {yours}."
        if game.has_beaten:
            return f"You have beaten the planner: {yours}, it found {format_s(game.planner_s)}."
        if game.score >= 100:
            return f"As good as the planner: {yours}{', proved the best' if reference.is_proved else ''}."
        return (
            f"Beat the planner: {yours}. It {'proved' if reference.is_proved else 'found'} {format_s(game.planner_s)}."
        )

    async def _refer(self, game: HandGame) -> None:
        found = await asyncio.to_thread(refer, game.topology, game.job)
        if self.game is game:
            self.reference, game.planner_s = found, found.cost_s
            self._show()

    def _deal_another(self) -> None:
        if self.beginning.value == BEGINNINGS[0]:
            self.seed.value += 1  # deals
        else:
            self.deal()

    def _undo(self) -> None:
        if self.game is not None:
            self.game.undo()
            self.board.hinted = []
            self._show()

    def _ask(self) -> None:
        if self.game is not None:
            begin(self._give_hint(self.game), self._report_error)

    async def _give_hint(self, game: HandGame) -> None:
        moves = len(game.moves)
        found = await asyncio.to_thread(game.best_swap)
        if self.game is not game or len(game.moves) != moves:
            return
        if found is None:
            self.board.note = "No single exchange makes it better: two or more at once might."
            return
        game.hints += 1
        names = [game.topology.names[at] for at in (found.one, found.other)]
        gain = f"{format_s(found.gain_s)} less" if found.gain_s > 0 else "the same cost, with fewer slow pairs"
        self.board.hinted = names
        self.board.note = f"Its next move: {names[0]} and {names[1]}, {gain}."
        self._show()

    async def _take_over(self) -> None:
        game = self.game
        if game is not None:
            self._lab_state.plan = await asyncio.to_thread(plan_of, game.topology, game.job, game.grid.copy())

    def _follow(self) -> None:
        """Deal anew where another network was opened, or its costs have changed."""
        topology, game = self._lab_state.topology, self.game
        if game is not None and (topology is None or topology.fingerprint != game.topology.fingerprint):
            self.game = None
            if self._is_shown:
                self.deal()
            else:
                self._show()

    def _keep_best(self, game: HandGame) -> None:
        key = (game.topology.fingerprint, *game.shape)
        found = Best(game.score, len(game.moves), game.cost_s)
        before = self.bests.get(key)
        if found.score > 0 and (before is None or (found.score, -found.n_moves) > (before.score, -before.n_moves)):
            self.bests[key] = found

    def _show(self) -> None:
        game = self.game
        for control in (self.anew, self.hint, self.take):
            disable(control, "" if game is not None else "There is no network to arrange yet")
        disable(self.undo, "" if game is not None and game.moves else "No move has been made yet")
        if game is None:
            self.board.state = {}
            return
        self.board.state = self._state(game)
        if self._is_shown:
            self._lab_state.shown_stages = stages_by_name(game.topology, game.grid)
            self._lab_state.search_note = self.sentence

    def _state(self, game: HandGame) -> dict[str, Any]:
        names, reference = game.topology.names, self.reference
        best = self.bests.get((game.topology.fingerprint, *game.shape))
        known = reference is not None and game.planner_s > 0
        return {
            "rows": [[names[device] for device in group] for group in game.grid.tolist()],
            "idle": [names[device] for device in game.idle.tolist()],
            "groups_s": game.groups_s.tolist(),
            "hops_s": game.hops_s.tolist(),
            "now_s": game.cost_s,
            "planner_s": game.planner_s,
            "bound_s": reference.bound_s if known and reference is not None else 0.0,
            "chance_s": game.chance_s,
            "proved": bool(known and reference is not None and reference.is_proved),
            "score": game.score,
            "beaten": game.has_beaten,
            "moves": len(game.moves),
            "hints": game.hints,
            "seconds": game.seconds,
            "best": "" if best is None else f"{best.score:.0f} in {count(best.n_moves, 'move')}",
        }
