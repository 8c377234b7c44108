"""What a search makes least, and under which limits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import ipywidgets as w

from dtfm_lab.domain.options import Option
from dtfm_lab.figures.measures import MEASURES, ObjectiveWords, measure_of
from dtfm_lab.planning import default_objective, objectives
from dtfm_lab.widgets.controls import SavedControls, controls_for, menu, show
from dtfm_lab.widgets.lab_state import Guard, LabState

COMMUNICATION = "communication"
UNLIMITED = 0.0
LABEL_WIDTH = "164px"
"""Of the controls here and of those below them in a menu, so that their fields stand in one column."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a plan must not exceed."""

    max_price_per_hour: Annotated[
        float, Option(help="Only plans whose devices cost at most so much; 0: any.", least=UNLIMITED)
    ] = UNLIMITED
    max_iteration_s: Annotated[float, Option(help="Only plans that take at most so long; 0: any.", least=UNLIMITED)] = (
        UNLIMITED
    )


class ObjectiveControls(SavedControls):
    """The menu of objectives, with limits; at first what the job is planned for by default.

    Where the job's default becomes another, as with a job of given message sizes, the menu follows it.
    """

    def __init__(self, lab_state: LabState, changed: Callable[[], None]) -> None:
        self._lab_state = lab_state
        self._changed: Callable[[], None] = lambda: None
        self._default = ""
        self._is_offering = Guard()
        self.objective = menu(
            "Plan for",
            f"calc({LABEL_WIDTH} + 194px)",
            LABEL_WIDTH,
            [(measure.choice, name) for name, measure in MEASURES.items()],
            "What the search makes least: seconds of the simulated iteration, dollars for tokens, or the "
            "communication cost of the paper",
        )
        limits = controls_for(Limits, LABEL_WIDTH)
        self.max_price, self.max_seconds = limits.values()
        self.limits = w.VBox(list(limits.values()))
        self._controls = {"objective": self.objective, **limits}
        self.objective.observe(lambda _: self._show(), "value")
        lab_state.observe(lambda _: self._follow(), "job")
        self._follow()
        self._changed = changed

    @property
    def measure(self) -> ObjectiveWords:
        """The words of the chosen objective."""
        return measure_of(self.objective.value)

    def options(self) -> dict[str, Any]:
        """Return the keywords of a search."""
        given: dict[str, Any] = {"objective": self.objective.value}
        if self.objective.value == COMMUNICATION:
            return given
        given["queueing"] = self._lab_state.queueing
        limits = {name: control.value for name, control in self._controls.items() if name != "objective"}
        return given | {name: limit for name, limit in limits.items() if limit > UNLIMITED}

    def restore(self, settings: object) -> None:
        """Set the controls to saved values; limits that a file of before says were switched off stay off."""
        if isinstance(settings, dict) and settings.get("more") is False:
            settings = {"objective": settings.get("objective")}
        super().restore(settings)

    def _follow(self) -> None:
        """Offer what the job can be planned for."""
        job = self._lab_state.job
        if job is None:
            return
        known = [*MEASURES, *(name for name in objectives if name not in MEASURES)]
        offered = [COMMUNICATION] if job.model is None else known
        options = [(measure_of(name).choice, name) for name in offered]
        default, kept = default_objective(job), self.objective.value
        with self._is_offering:
            if options != list(self.objective.options):
                self.objective.options = options
            self.objective.value = kept if kept in offered and default == self._default else default
        self._default = default
        self._show()

    def _show(self) -> None:
        if self._is_offering:
            return
        show(self.limits, self.objective.value != COMMUNICATION)
        self._changed()
