"""The one next step under the headline: from the first plan to a run, a killed device and a link to share.

Steps only go forward. What a person does without being led counts too: a run that they start takes them past the steps
before it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from dtfm_lab import lab
from dtfm_lab.domain.units import format_share
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.widgets.lab_state import LabState, is_another, run_staleness, shown_s
from dtfm_lab.widgets.running.fault_controls import KILL
from dtfm_lab.widgets.running.run_panel import RunPanel
from dtfm_lab.widgets.tasks import FRAME_S, OncePerTurn, begin, has_event_loop
from dtfm_lab.widgets.views.frame import TopBar

# Each step but the last is also the name of its button.
PULL = "step-pull"
TRAIN = "step-train"
DISTURB = "step-kill"
SHARE = "step-share"
DONE = "done"
STEPS = (PULL, TRAIN, DISTURB, SHARE, DONE)
"""The steps in order."""
SKIP = "step-skip"
"""Name of the button that skips a step."""
GUESS = "step-guess-"
"""Start of the name of a button with a guess. The guess follows."""
RECORD_KILL = "record-kill"
"""Name that the page sends once a person has allowed it to record a kill."""
CANCEL_RECORDING = "record-kill-cancel"
"""Name that the page sends if the person cancels the recording."""
RUN_S = 10.0
"""Predicted seconds that a run started by a step should take. They set its number of iterations."""
ITERATIONS = (4, 40)
"""Minimum and maximum iterations of a run that a step starts. The first iterations are not typical."""
KILLED_AFTER = 2
"""Iterations after which a device is killed."""
LEFT_AFTER_KILL = 8
"""Minimum iterations of a run that is started to kill a device."""
BEFORE_KILL_S = 2.0
"""Seconds of a video before the kill, so that a viewer sees what normal training looks like."""
RECORDED_S = 12.0
"""Minimum predicted seconds of a run that is started for a video of 8 s, which begins after the first iterations."""
NEAR = (0.02, 0.10)
"""Limits between the three guesses, as relative errors of the prediction."""
GUESSES = ("under 2 %", "2 to 10 %", "more than 10 %")
QUESTION = "By how much will the prediction be off?"
FOLLOWED = (
    *("topology", "plan", "binding", "binding_helps", "selected", "selected_link"),
    *("busy", "comparison", "run_story", "run_part"),
)


class FirstMinute:
    """Writes ``view.step``. ``take`` does what a button of a step says."""

    def __init__(
        self,
        lab_state: LabState,
        view: TopBar,
        run_panel: RunPanel,
        press: Callable[[str], None],
        share: Callable[[], None],
    ) -> None:
        """``press`` presses a button of the bar. ``share`` copies a link."""
        self._lab_state, self._view, self._run_panel = lab_state, view, run_panel
        self._press, self._share = press, share
        self._at = 0
        self._guess: str = ""
        """The user's guess of the prediction's error in the current run, one of ``GUESSES``. Empty before it."""
        self._judged = ""
        """In words: how far off the prediction was, and whether the guess was right. Empty without a guess."""
        self._is_recorded = self._is_cancelled = False
        """True if a page records the kill that is about to happen, and if a person cancelled its video before the
        kill."""
        self._victim = ""
        """The device that is about to be killed."""
        self._showing = OncePerTurn(self._show)
        lab_state.observe(self._follow_topology, "topology")
        lab_state.observe(lambda _: self._follow(), FOLLOWED)
        self._show()

    @property
    def step(self) -> str:
        """The name of the current step."""
        return STEPS[self._at]

    def take(self, name: str) -> None:
        """Do what a step's button says."""
        if name == PULL:
            self._lab_state.select(self._lab_state.binding)
        elif name == SKIP:
            self._reach(STEPS[min(self._at + 1, len(STEPS) - 1)])
        elif name == TRAIN:
            self._begin_run()
        elif name == DISTURB:
            self._kill_one()
        elif name == RECORD_KILL:
            self._kill_one(is_recorded=True)
        elif name == CANCEL_RECORDING:
            self._is_cancelled = self._is_recorded
        elif name == SHARE:
            self._share()
        elif name.startswith(GUESS) and name.removeprefix(GUESS) in GUESSES:
            self._guess = name.removeprefix(GUESS)
        self._showing.ask()

    def shared(self, done: bool) -> None:
        """Reach the last step if the page has copied the link (``done``). If not, open the menu with the link."""
        if self.step == SHARE:
            self._reach(DONE) if done else self._view.send({"kind": "menu", "name": "more"})

    def _reach(self, step: str) -> None:
        """Go to a step, but never back."""
        self._at = max(self._at, STEPS.index(step))
        self._showing.ask()

    def _follow_topology(self, change: dict[str, Any]) -> None:
        before, now = change["old"], change["new"]
        if before is not None and now is not None and self._lab_state.plan is not None and not is_another(before, now):
            self._reach(TRAIN)

    def _follow(self) -> None:
        state = self._lab_state
        if "run" in state.busy:
            self._reach(TRAIN)
        if state.comparison is not None and not state.is_mystery and not run_staleness(state):
            self._judge(abs(state.comparison.iteration_error))
            self._reach(DISTURB)
        if state.run_story:
            self._victim = ""
            self._reach(SHARE)
        self._showing.ask()

    def _show(self) -> None:
        self._view.step = self._said()

    def _said(self) -> dict[str, Any]:
        """Return the current value of ``TopBar.step``. Empty while there is nothing to do next."""
        state = self._lab_state
        if state.plan is None or state.plan.job.model is None:
            return {}
        return {PULL: self._pull, TRAIN: self._train, DISTURB: self._kill, SHARE: self._link, DONE: self._end}[
            self.step
        ]()

    def _pull(self) -> dict[str, Any]:
        ends, state = self._lab_state.binding, self._lab_state
        if not ends:
            return {}
        if not state.binding_helps:  # nothing single is worth pulling, so the next step is offered
            return self._train()
        is_link = len(ends) == 2
        if ends in (state.selected, state.selected_link):
            hint = (
                "Drag its bandwidth to the right, below the picture."
                if is_link
                else "Choose its GPU, below the picture."
            )
            return _step(PULL, hint, (SKIP, "Skip"))
        return _step(PULL, "Next:", (PULL, "Pull this link faster" if is_link else f"Make {ends[0]} faster"))

    def _train(self) -> dict[str, Any]:
        if "run" not in self._lab_state.busy and self._lab_state.plan_is_stale:
            return _step(TRAIN, "Is the prediction right? The changed network needs a plan first.")
        if "run" not in self._lab_state.busy:
            part = self._lab_state.run_part.removeprefix("the whole plan, ")
            return _step(
                TRAIN,
                "Is the prediction right?",
                (TRAIN, f"Train {part} here" if part else f"Train it here, about {self._run_s():.0f} s"),
            )
        if self._guess:
            return _step(
                TRAIN, f"You guess {self._guess}. It is training. The measured time will appear in the bar above."
            )
        if self._asks() is None or self._lab_state.is_mystery:
            return _step(TRAIN, "It is training. The measured time will appear in the bar above.")
        return _step(TRAIN, f"While it trains, guess. {QUESTION}", *((f"{GUESS}{words}", words) for words in GUESSES))

    def _kill(self) -> dict[str, Any]:
        if self._victim:
            return _step(DISTURB, f"{self._victim} is killed after iteration {KILLED_AFTER}. Watch its copy take over.")
        found = self._lab_state.comparison
        error = "" if found is None else f"The prediction was off by {format_share(abs(found.iteration_error))}."
        return _step(
            DISTURB, " ".join(filter(None, [self._judged or error, "What if a device dies?"])), (DISTURB, "Kill one")
        )

    def _link(self) -> dict[str, Any]:
        return _step(SHARE, "Its copy took over, and training continues.", (SHARE, "Share this"))

    def _end(self) -> dict[str, Any]:
        return _step(DONE, "The link is copied. Now drag anything, or open another network.")

    def _iterations(self) -> int:
        fewest, most = ITERATIONS
        seconds = shown_s(self._lab_state)
        return min(most, max(fewest, round(RUN_S / seconds))) if seconds else fewest

    def _run_s(self) -> float:
        return self._iterations() * (shown_s(self._lab_state) or 0.0)

    def _begin_run(self, fewest: int = 0) -> None:
        self._guess = self._judged = ""
        # How long a part takes with another model is unknown before.
        n = self._run_panel.iterations.value if self._lab_state.run_part else self._iterations()
        self._run_panel.iterations.value = max(fewest, n)
        self._press("run")

    def _kill_one(self, is_recorded: bool = False) -> None:
        """Kill a device of the current run, or of a new one. If the kill is recorded, the page gets a message shortly
        before."""
        if not has_event_loop():
            return
        if why := self._why_no_kill(is_recorded):
            return self._refuse_kill(is_recorded, why)
        if "run" not in self._lab_state.busy:
            self._begin_run(self._recorded_iterations() if is_recorded else LEFT_AFTER_KILL)
        run = self._run_panel.run
        if run is None or not run.running:  # it was refused, and the headline says why
            return self._refuse_kill(is_recorded, self._lab_state.message or "no run could start")
        self._is_recorded, self._is_cancelled = is_recorded, False
        self._victim = next((name for name in self._lab_state.selected if name in run.ranks), [*run.ranks][-1])
        begin(self._kill_soon(run, self._victim), lambda line: self._lab_state.report_error("run", line))

    def _why_no_kill(self, is_recorded: bool) -> str:
        """Return why no device can be killed, in the current run or else in a new one. Empty if nothing prevents it."""
        if self._victim:
            return f"{self._victim} is about to be killed already"
        run = self._run_panel.run
        if "run" not in self._lab_state.busy:
            return self._run_panel.start.tooltip if self._run_panel.start.disabled else ""
        if run is None or not run.running:
            return "the last run is still being compared; try again in a moment"
        if not self._run_panel.faults.may_disturb:
            return "a mystery has a fault already"
        is_late = is_recorded and run.spec.iterations - len(run.losses) < LEFT_AFTER_KILL
        return f"this run has fewer than {LEFT_AFTER_KILL} iterations left; try again after it" if is_late else ""

    def _recorded_iterations(self) -> int:
        """Return the number of iterations that last longer than a video. If the speed is unknown, as for a part of a
        plan, return the maximum of ``ITERATIONS``."""
        seconds = None if self._lab_state.run_part else shown_s(self._lab_state)
        return max(LEFT_AFTER_KILL, math.ceil(RECORDED_S / seconds)) if seconds else ITERATIONS[1]

    def _refuse_kill(self, is_recorded: bool, why: str) -> None:
        """Say why nothing is killed: to the page that records, otherwise in the headline."""
        if is_recorded:
            self._tell_recorder(why)
        else:
            self._lab_state.report_error("run", why)

    def _tell_recorder(self, why_not: str = "") -> None:
        """Tell a page that records that the kill is about to happen, or why it does not."""
        self._view.send({"kind": "kill", "why_not": why_not})

    async def _kill_soon(self, run: Run, victim: str) -> None:
        """Kill the device after ``KILLED_AFTER`` iterations, unless the video is cancelled or the run ends."""

        def is_wanted() -> bool:
            return run.running and run is self._run_panel.run and not self._is_cancelled

        try:
            while is_wanted() and len(run.losses) < KILLED_AFTER:
                await asyncio.sleep(FRAME_S)
            if self._is_recorded and not self._is_cancelled:
                self._tell_recorder("" if is_wanted() else "the run ended before the kill")
                await asyncio.sleep(BEFORE_KILL_S)
            if is_wanted():
                before = len(run.faults)
                self._run_panel.faults.act(victim, KILL)
                while is_wanted() and len(run.faults) == before:
                    await asyncio.sleep(FRAME_S)
        finally:
            self._victim, self._is_recorded = "", False
            self._showing.ask()

    def _asks(self) -> Callable[..., Any] | None:
        """Return ``lab.guess``. None if its extension is not installed."""
        return getattr(lab, "guess", None)

    def _judge(self, error: float) -> None:
        """Hand in the guess with ``lab.guess``, and set ``_judged``. ``error`` is the prediction's relative error."""
        guess, ask = self._guess, self._asks()
        if not guess or self._judged or ask is None:
            return
        answer = GUESSES[sum(error >= limit for limit in NEAR)]
        asked = ask("first-minute-error", QUESTION, answer, choices=GUESSES)
        asked.guess(guess, "in the first minute of the lab")
        right = "and you were right" if guess == answer else f"and you guessed {guess}"
        self._judged = f"The prediction was off by {format_share(error)}, {right}."


def _step(name: str, words: str, *buttons: tuple[str, str]) -> dict[str, Any]:
    return {"name": name, "words": words, "buttons": [{"name": one, "label": label} for one, label in buttons]}
