"""The pane Course: lessons, missions and hints. It checks an answer that is on the screen or typed."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Sequence
from datetime import date
from types import FunctionType
from typing import TYPE_CHECKING, Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.course import missions as board
from dtfm_lab.extensions.course.api import LESSONS, Mission, Verdict, missions
from dtfm_lab.extensions.course.daily import ITERATIONS, daily_secret, daily_state, title_of
from dtfm_lab.extensions.course.graded import assignment_of
from dtfm_lab.extensions.course.guessing import score_of
from dtfm_lab.extensions.course.pane.markdown import inline_markdown, markdown
from dtfm_lab.extensions.course.progress import Assignment, Attempts, Progress, current_reader
from dtfm_lab.extensions.course.views.course import CourseView
from dtfm_lab.extensions.systems.api import Outcome
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, button, classed, toolbar
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.markup import line
from dtfm_lab.widgets.shell.panes import LEARN, LabStep
from dtfm_lab.widgets.shell.workspace import restore_state
from dtfm_lab.widgets.tasks import begin, shared_interpreter

if TYPE_CHECKING:
    from dtfm_lab.widgets.workbench import Lab

STEP = "course"
"""Name of this pane."""
NOTHING_SHOWN = "The screen shows none yet."
DAILY = "One link is secretly slow today, the same for everyone. Find it, and share your score"
TYPED = (float, str, list, tuple)
"""Types of answers that can be typed in the pane."""
MADE_BY = {
    Topology: "the network that is drawn",
    Plan: "the plan",
    Trace: "the measured trace, else the predicted one",
    Outcome: "the system that is chosen",
}
"""Names of what is handed in from the screen, by the type that a mission takes."""


class CoursePanel(Panel):
    """Shows this reader's board, and checks the lab's network, plan, traces or training system against a mission."""

    def __init__(
        self,
        lab_state: LabState,
        open_network: Callable[[Topology, Job | None], None] = lambda *_: None,
        chosen_system: Callable[[], Outcome | None] = lambda: None,
        begin_daily: Callable[[], None] = lambda: None,
    ) -> None:
        """``open_network`` opens a mission's network in the lab. ``chosen_system`` returns the outcome that is selected
        in the pane of training systems, None if none is.

        ``begin_daily`` starts the mystery of the day.
        """
        self._lab_state, self._open_network, self._chosen_system = lab_state, open_network, chosen_system
        self._verdicts: dict[str, Verdict] = {}
        """The last verdict of each mission that was checked here."""
        self._has_looked = False
        self.checking = ""
        """The mission that is being checked; empty while no check runs."""
        self.board = CourseView()
        self.daily = button("Mystery of the day", "", DAILY, "auto")
        self.daily.on_click(lambda _: begin_daily())
        offer = toolbar(self.daily, w.HTML(line(DAILY)))
        self.view = classed(w.VBox([offer, self.board]), "dtfm-pane")
        self.board.on_msg(self._received)
        self.board.observe(lambda _: self._show_detail(), "chosen")
        lab_state.observe(lambda _: self._look(), "shown_panes")
        lab_state.observe(lambda _: self._follow(), ["topology", "job", "plan", "predicted", "measured"])
        self._look()

    def settings(self) -> dict[str, Any]:
        return {"chosen": self.board.chosen}

    def restore(self, settings: dict[str, Any]) -> None:
        """Open the mission that was open. Progress is kept in a separate file."""
        if settings.get("chosen") in missions:
            self.board.chosen = settings["chosen"]

    def redo(self) -> None:
        """Read the reader's file again, because other notebooks may have changed it."""
        self._show_board()
        self._show_detail()

    def result(self, _: LabState) -> str:
        """Return how many missions are won. Empty before the first, and before the pane was opened."""
        return self.board.caption.split(" · ")[0] if self._has_looked and self.board.n_passed else ""

    def _look(self) -> None:
        """Read the missions and the reader's file each time the pane is shown, not before."""
        if self._lab_state.shows(STEP):
            self._has_looked = True
            self.redo()

    def _follow(self) -> None:
        if self._has_looked and self._lab_state.shows(STEP):
            self._show_detail()

    def _progress(self) -> Progress:
        try:
            return board.progress()
        except LabError as error:
            self.board.problem = str(error)
            return Progress(current_reader(), {}, [])

    def _allowed(self, mission: Mission) -> Assignment:
        try:
            return assignment_of(mission, current_reader())
        except LabError:  # a file that cannot be read is reported already, and allows nothing
            return Assignment(hints=False)

    def _sample(self, mission: Mission) -> str:
        return self._allowed(mission).variant or current_reader()

    def _starts_from(self, mission: Mission) -> tuple[Topology, Job | None] | None:
        """Return what the button *Draw* opens: the mission's network and job, for this reader. None if it has no
        network."""
        return mission.starts_from(self._sample(mission))

    def _candidates(self, mission: Mission) -> list[Any]:
        return candidates(mission, self._lab_state, self._chosen_system())

    def _show_board(self) -> None:
        self.board.problem = ""
        progress = self._progress()
        passed = set(progress.passed())
        names = board.names()
        with self.board.hold_sync():
            self.board.lessons = [
                {what: getattr(lesson, what) for what in ("name", "title", "question", "minutes")}
                | {"missions": [_row(missions[name], progress) for name in board.names(lesson.name)]}
                for lesson in LESSONS.values()
            ]
            n_passed = sum(name in passed for name in names)
            self.board.n_passed, self.board.n_missions = n_passed, len(names)
            caption = [f"{n_passed} of {counted(len(names), 'mission')} won"]
            caption += [score_of(progress.guesses)] if progress.guesses else []
            self.board.caption = " · ".join([*caption, f"reader: {progress.reader}"])
            self.board.next = next((name for name in names if name not in passed), "")

    def _show_detail(self) -> None:
        name = self.board.chosen
        if name not in missions:
            self.board.detail = {}
            return
        mission, attempts = missions[name], self._progress().missions.get(name) or Attempts()
        allowed = self._allowed(mission)
        n_hints = attempts.hints if allowed.hints else 0
        has_answer = attempts.answer_shown and allowed.answers
        verdict = self._verdicts.get(name)
        task = mission.task_of(self._sample(mission))
        given = "your_function" if FunctionType in kinds_of(mission) else "answer"  # which only a cell has
        self.board.detail = {
            "name": name,
            "task": markdown(task),
            "wanted": f"Hand in {mission.wanted}.",
            "hints": [inline_markdown(text) for text in mission.hints[:n_hints]],
            "n_hints": len(mission.hints) if allowed.hints else 0,
            "answer": board.answer_code(name) if has_answer else "",
            "has_answer": allowed.answers,
            "off": "" if allowed.answers else f"Graded: {_off(allowed)} by the assignment.",
            "verdict": {} if verdict is None else {"passed": verdict.passed, "reason": inline_markdown(verdict.reason)},
            "checks": "" if ends_typed(mission) else words_for(mission),
            "why_not": NOTHING_SHOWN if is_shown(mission) and not self._candidates(mission) else "",
            "typed": is_typed(mission),
            "is_number": mission.takes is float or ends_typed(mission),
            "cell": f"lab.missions.check({name!r}, {given})",
            "network": "" if (start := self._starts_from(mission)) is None else start[0].name,
            "busy": self.checking == name,
        }

    def _received(self, _: Any, content: dict[str, Any], __: Any) -> None:
        name = self.board.chosen
        if name not in missions or self.checking:
            return
        try:
            match content.get("kind"):
                case "hint":
                    board.hint(name)
                case "answer":
                    board.answer(name)
                case "check":
                    return self.check(self._candidates(missions[name]))
                case "typed":
                    mission, text = missions[name], str(content.get("text", ""))[:100_000]
                    if not ends_typed(mission):
                        return self.check([typed(mission, text)])
                    shown = self._candidates(mission)
                    return self.check([[each, typed(mission, text)] for each in shown or [None]])
                case "open":
                    if (start := self._starts_from(missions[name])) is not None:
                        self._open_network(*start)
                    return None
        except LabError as error:
            self.redo()
            self.board.problem = str(error)
            return None
        self.redo()

    def check(self, answers: Sequence[Any]) -> None:
        """Check answers to the chosen mission on a thread. One that wins is enough, and all together count as one
        try."""
        name = self.board.chosen
        if not answers:
            return
        self.checking = name
        self._show_detail()
        begin(self._check(name, answers), self._fail)

    async def _check(self, name: str, answers: Sequence[Any]) -> None:
        def work() -> Verdict:
            # The kernel and other panes keep working, because a check may simulate for seconds.
            with shared_interpreter():
                return board.check_any(name, answers)

        try:
            self._verdicts[name] = await asyncio.to_thread(work)
        finally:
            self.checking = ""
        self.redo()

    def _fail(self, problem: str) -> None:
        self.redo()
        self.board.problem = problem


def _off(allowed: Assignment) -> str:
    return "the worked answer is off" if allowed.hints else "hints and the worked answer are off"


def _row(mission: Mission, progress: Progress) -> dict[str, Any]:
    attempts = progress.missions.get(mission.name) or Attempts()
    row = {"name": mission.name, "title": mission.title, "minutes": mission.minutes}
    return row | {"passed": bool(attempts.passed_at), "note": attempts.words}


def kinds_of(mission: Mission) -> tuple[type, ...]:
    """Return the types that a mission takes. If its answer ends in a number, they are the types of what comes before
    it."""
    takes = mission.takes if mission.reason is None else mission.begins_with
    return takes if isinstance(takes, tuple) else (takes,)


def ends_typed(mission: Mission) -> bool:
    """Return True if the answer is something on the screen followed by a typed number."""
    return mission.reason is not None and is_shown(mission)


def is_typed(mission: Mission) -> bool:
    """Return True if the answer, or the number at its end, can be typed: a number, a text or a list."""
    return mission.reason is not None or any(kind in TYPED for kind in kinds_of(mission))


def is_shown(mission: Mission) -> bool:
    """Return True if the mission takes something that the lab can show, such as a plan."""
    return any(kind in MADE_BY for kind in kinds_of(mission))


def words_for(mission: Mission) -> str:
    """Return what is checked of the screen, such as "the plan". Empty if a mission takes nothing that the lab shows."""
    return ", or ".join(MADE_BY[kind] for kind in kinds_of(mission) if kind in MADE_BY)


def candidates(mission: Mission, state: LabState, outcome: Outcome | None) -> list[Any]:
    """Return the objects on the screen that have a type which the mission takes. A measurement comes before a
    prediction."""
    found = [state.measured, state.predicted, state.plan, state.topology, outcome]
    return [each for each in found if isinstance(each, kinds_of(mission))]


def typed(mission: Mission, text: str) -> Any:
    """Return the number or list that was typed. Any other text stays a text, and the check then says what it wanted."""
    text = text.strip()
    # Plain text may be typed without quotes.
    if str in kinds_of(mission) and not text.startswith(("'", '"')):
        return text
    try:
        return ast.literal_eval(text) if text else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def course_step(the_lab: Lab) -> LabStep:
    """Return the pane Course for a lab."""

    def chosen_system() -> Outcome | None:
        return getattr(the_lab.panels.get("systems"), "chosen", None)

    def begin_daily() -> None:
        """Open the plan of the mystery, and start its run over emulated links."""
        state, day = the_lab.lab_state, date.today()
        try:
            restore_state(daily_state(), state, the_lab.panels)
        except LabError as error:
            return state.report_error(STEP, str(error))
        the_lab.show_pane("run")
        the_lab.run_panel.clock.value, the_lab.run_panel.iterations.value = "virtual", ITERATIONS
        the_lab.run_panel.begin_mystery(daily_secret(day), title_of(day))

    panel = CoursePanel(the_lab.lab_state, the_lab.draw_network, chosen_system, begin_daily)
    return LabStep(STEP, panel, "Course", panel.result, position=100, tab=LEARN)
