"""What the inspector adds to a selection: fields to edit it, why it is in its place, and what a better one would
save."""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from dtfm_lab.domain.errors import LabError, TopologyError
from dtfm_lab.domain.network import HARDWARE
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import explain
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.network.drawing import Document
from dtfm_lab.widgets.tasks import begin, has_event_loop
from dtfm_lab.widgets.what_if.worth import savings

QUIET_S = 0.2
"""Seconds that a selection and its plan must last before anything is simulated for them."""
MOST_DEVICES = 128
"""Maximum devices of a plan for which a selection's savings are simulated without being asked. The page Worth lists
the savings of larger plans."""
NUMBERS = {
    "price_per_hour": ("Price ($ per hour)", "unknown", "a number of dollars, 0 or more", 0.0),
    "uplink_gbps": ("Uplink (Gbit/s)", "no limit", "a number of Gbit/s above 0", math.ulp(0.0)),
}
"""Label, meaning of an empty field, valid input and minimum of each number field of a device."""
Asked = tuple[Plan, str, str, tuple[str, ...]]


def fields_of(document: Document, name: str) -> list[dict[str, Any]]:
    """Return the fields {key, label, value, placeholder, options} that edit a device or host of the drawing."""
    found = next((one for one in document["devices"] if one["name"] == name), None)
    if found is None:
        return []
    gpus = sorted({found["gpu"], *(one["gpu"] for one in document["devices"]), *HARDWARE}, key=str.lower)
    fields: list[dict[str, Any]] = [{"key": "gpu", "label": "GPU", "value": found["gpu"], "options": gpus}]
    for key, (label, empty, _, _) in NUMBERS.items():
        value = found.get(key)
        fields.append(
            {"key": key, "label": label, "value": "" if value is None else f"{value:g}", "placeholder": empty}
        )
    return fields


def with_field(document: Document, name: str, key: str, text: str) -> Document:
    """Return the drawing with a field of a device changed. An empty number means unknown, or no limit.

    Raises TopologyError if the text is not a valid value.
    """
    value: str | float | None = text.strip() or None
    if key in NUMBERS and value is not None:
        label, _, wanted, least = NUMBERS[key]
        try:
            value = float(value)
        except ValueError:
            # Fails the check below, which says what is wanted.
            value = math.nan
        if not least <= value < math.inf:
            raise TopologyError(f"{name}: {label.partition(' (')[0].lower()} is {text.strip()}; wanted {wanted}")

    def changed(device: dict[str, Any]) -> dict[str, Any]:
        # An empty number is left out, which the drawing's format reads as unknown.
        kept = {what: held for what, held in device.items() if what != key}
        return device if device["name"] != name else kept if value is None else device | {key: value}

    if key not in (*NUMBERS, "gpu") or (key == "gpu" and value is None):
        return document
    return document | {"devices": [changed(device) for device in document["devices"]]}


class SelectionAnswers:
    """Computes in the background what a better selection would save, and why a device is in its place."""

    def __init__(self, lab_state: LabState, changed: Callable[[], None]) -> None:
        """``changed`` is called when there is a new answer."""
        self._lab_state, self._changed = lab_state, changed
        self._report_error = partial(lab_state.report_error, "network")
        self._asked: Asked | None = None
        self._rows: list[list[str]] = []
        self._why: tuple[Plan, str, str] | None = None

    def rows(self) -> list[list[Any]]:
        """Return the selection's rows (what, text, -1) for the inspector, as far as known. Request what is missing.

        The third entry is the stage of a row. -1 is for none.
        """
        asked = self._wanted()
        if asked != self._asked:
            self._asked, self._rows = asked, []
            # Simulations with a faster device take a while, so the page shows the other facts first.
            if asked is not None and has_event_loop():
                begin(self._answer(asked), self._report_error)
        rows: list[list[Any]] = [[what, text, -1] for what, text in self._rows]
        if self._why is not None and asked is not None and self._why[:2] == (asked[0], asked[3][0]):
            rows.append(["why here", self._why[2], -1])
        return rows

    @property
    def can_explain(self) -> bool:
        """True if the selection is one device that the plan uses, the plan is current, and its job has a model."""
        asked = self._wanted()
        return asked is not None and len(asked[3]) == 1

    def explain(self) -> None:
        """Explain why the selected device is in its place."""
        if (asked := self._wanted()) is not None and len(asked[3]) == 1:
            begin(self._explain(asked[0], asked[3][0]), self._report_error)

    def _wanted(self) -> Asked | None:
        state = self._lab_state
        devices = state.selected_link or (state.selected if len(state.selected) == 1 else ())
        try:
            plan = state.chosen_plan
        except LabError:
            return None
        if plan is None or not devices or state.plan_is_stale or plan.job.model is None:
            return None
        used = {name for names in plan.stages for name in names}
        known = used if len(devices) == 1 else set(plan.topology.names)
        return (plan, state.schedule, state.queueing, tuple(devices)) if known.issuperset(devices) else None

    async def _answer(self, asked: Asked) -> None:
        # A user who clicks through many devices waits for none of them.
        await asyncio.sleep(QUIET_S)
        plan, schedule, queueing, devices = asked
        # Asked for another device since, or too many devices for a quick answer.
        if asked != self._asked or plan.job.n_tasklets > MOST_DEVICES:
            return
        try:
            rows = await asyncio.to_thread(savings, plan, schedule, queueing, devices)
        except LabError:  # the schedule does not fit, and its pane says why
            return
        # The selection may have changed while the thread computed.
        if asked == self._asked:
            self._rows = rows
            self._changed()

    async def _explain(self, plan: Plan, device: str) -> None:
        text = await asyncio.to_thread(lambda: explain(plan).why(device))
        self._why = plan, device, text
        self._changed()
