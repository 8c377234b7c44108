"""A button that explains why the plan is as it is, or why the selected device is in its place."""

import asyncio
from functools import partial
from html import escape

from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import explain
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import more_menu
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.tasks import LatestRequest

NO_PLAN = "No plan yet: draw at least two devices and choose a job."


class WhyMenu:
    """``view`` is the button with its box. Its text is computed on a thread while it is open."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self.text = w.HTML(tabbable=True)  # a page of text, which arrows scroll
        self.view = more_menu(
            [self.text], "Why this plan?", "Why the plan looks like this, or why the selected device is in its place"
        )
        self.opener: w.ToggleButton = self.view.children[0]
        self._request = LatestRequest(
            self._answer,
            partial(lab_state.report_error, "schedule"),
            can_answer=lambda: self.opener.value,
            at_rest=lambda: None,
        )
        self.opener.observe(lambda _: self._request.go_on(), "value")
        lab_state.observe(lambda _: self._request.ask(), ["plan", "selected"])
        self._request.ask()

    async def _answer(self, _: int) -> None:
        plan, selected = self._lab_state.plan, self._lab_state.selected
        if plan is None:
            self._show("Why this plan?", NO_PLAN)
            return
        used = {name for names in plan.stages for name in names}
        device = selected[0] if len(selected) == 1 and selected[0] in used else ""
        text = await asyncio.to_thread(_explained, plan, device)
        self._show(f"Why is {device} here?" if device else "Why this plan?", text)

    def _show(self, title: str, text: str) -> None:
        lines = "".join(f"<p>{escape(line)}</p>" for line in text.splitlines())
        self.text.value = f'<div class="dtfm-why" role="status"><b>{escape(title)}</b>{lines}</div>'


def _explained(plan: Plan, device: str) -> str:
    explanation = explain(plan)
    return explanation.why(device) if device else explanation.text
