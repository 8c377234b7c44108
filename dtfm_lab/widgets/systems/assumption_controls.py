"""What a model of a system assumes: each assumption with its value to change, its sentence and its source."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from typing import Any

import ipywidgets as w

from dtfm_lab.domain.errors import LabError
from dtfm_lab.systems import Assumption, Strategy, strategies
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import button, classed, control_for, value_of
from dtfm_lab.widgets.lab_state import Guard


class AssumptionControls:
    """``view`` shows one system's assumptions; ``changed`` is called with the system as a control makes it."""

    def __init__(self, changed: Callable[[Strategy], None]) -> None:
        self._changed = changed
        self._is_filling = Guard()
        self.strategy: Strategy | None = None
        self.by_field: dict[str, w.ValueWidget] = {}
        self.problem = w.HTML()
        self.reset = button("As modelled", "undo", "Every assumption as its source has it", "auto")
        self.reset.on_click(lambda _: self._reset())
        self.view = classed(w.VBox(), "dtfm-assumptions")

    def show(self, strategy: Strategy | None) -> None:
        """Show the assumptions of a system; None for none."""
        before, self.strategy = self.strategy, strategy
        self.problem.value = ""
        if strategy is None:
            self.by_field, self.view.children = {}, ()
            return
        if before is None or type(before) is not type(strategy):
            self._build(strategy)
        with self._is_filling:
            for one in strategy.assumptions:
                value = getattr(strategy, one.field)
                if isinstance(control := self.by_field[one.field], w.Text):
                    value = "" if value is None else str(value)
                control.value = value
        self.reset.disabled = not strategy.changed

    def _build(self, strategy: Strategy) -> None:
        self.by_field = {}
        rows: list[w.Widget] = []
        for one in strategy.assumptions:
            control = control_for(one, width="100%", label_width="40%", placeholder="not given")
            self.by_field[one.field] = control
            text = w.HTML(_told(one))
            row = w.HBox([control, text])
            row.add_class("dtfm-assumption")
            rows.append(row)
            control.observe(lambda _: self._take(), "value")
        told = w.HTML(_system(strategy))
        nothing = [] if rows else [w.HTML(markup.line("Nothing of it is left to be assumed."))]
        self.view.children = (told, *nothing, *rows, w.HBox([self.reset, self.problem]))

    def _take(self) -> None:
        strategy = self.strategy
        if self._is_filling or strategy is None:
            return
        self.problem.value = ""
        try:
            values = {one.field: _value(one, self.by_field[one.field]) for one in strategy.assumptions}
            made = replace(strategy, **values)
        except (LabError, ValueError) as error:
            self.problem.value = markup.line(escape(str(error)), "warning")
            return
        if made != strategy:
            self.strategy = made
            self.reset.disabled = not made.changed
            self._changed(made)

    def _reset(self) -> None:
        if self.strategy is not None:
            made = type(self.strategy)()
            self.show(made)
            self._changed(made)


class ChangedAssumptions:
    """The systems of which an assumption was changed, by name; as plain changes in a workspace file."""

    def __init__(self) -> None:
        self._changed: dict[str, Strategy] = {}

    def keep(self, strategy: Strategy) -> None:
        """Keep a system where it differs from its model."""
        self._changed.pop(strategy.name, None)
        if strategy.changed:
            self._changed[strategy.name] = strategy

    def strategy(self, name: str) -> Strategy:
        """Return a system with its changes."""
        kept = self._changed.get(name)
        return strategies[name]() if kept is None else kept

    def settings(self) -> dict[str, dict[str, Any]]:
        return {
            name: {one.field: value for one in made.assumptions if (value := getattr(made, one.field)) != one.default}
            for name, made in self._changed.items()
        }

    def restore(self, saved: object) -> None:
        """Take saved changes, those that are possible."""
        if not isinstance(saved, Mapping):
            return
        self._changed = {}
        for name, changes in saved.items():
            if name in strategies and isinstance(changes, Mapping):
                self.keep(_changed(name, changes))


def _changed(name: str, changes: Mapping[str, Any]) -> Strategy:
    """Return a system with those of the assumptions that are possible; others are left as they are by default."""
    made: Strategy = strategies[name]()
    for one in made.assumptions:
        if one.field in changes:
            try:
                made = replace(made, **{one.field: changes[one.field]})
            except LabError:
                continue
    return made


def _value(one: Assumption, control: w.ValueWidget) -> Any:
    value = value_of(one, control)
    return float(value) if one.type is float and value is not None else value


def _system(strategy: Strategy) -> str:
    """Return the system's sentence, what it changes of the training, and who wrote it."""
    first = (type(strategy).__doc__ or "").strip().splitlines()[0]
    cite = escape(strategy.cite)
    if strategy.url.startswith(markup.LINKS):
        cite = f'<a href="{escape(strategy.url)}" target="_blank" rel="noopener noreferrer">{cite}</a>'
    differs = f"<br><b>Another training:</b> {escape(strategy.mathematics)}" if strategy.mathematics else ""
    return f'<div class="dtfm-line">{escape(first)} <span class="dtfm-source">{cite}</span>{differs}</div>'


def _told(one: Assumption) -> str:
    return f'<div class="dtfm-line">{escape(one.help)} <span class="dtfm-source">{escape(one.source)}</span></div>'
