"""Parts that panels are made of: their base class, functions that build controls, and control values as plain data.

A field of an options class declares its type, bounds, choices and help. ``control_for`` builds a control from them.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import traitlets

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import JobOptions
from dtfm_lab.domain.job.options import LEFT_TO_PLANNERS
from dtfm_lab.domain.network import QUEUEING
from dtfm_lab.domain.options import MOST_COUNT, Option, options_of
from dtfm_lab.files.reading import read_mapping
from dtfm_lab.widgets import quiet as w

T = TypeVar("T")
W = TypeVar("W", bound=w.DOMWidget)

_TEXTS = read_mapping(Path(__file__).parent / "texts" / "options.yaml")
LABELS: dict[str, str] = _TEXTS["labels"]
CHOICES: dict[str, dict[str, str]] = _TEXTS["choices"]
"""{option: {choice: its text on the screen}}."""
NOT_TRIED = frozenset((
    "dtype", "gradient_compression", "codec_bytes_per_s", "stages_per_device", "microbatch", "bucket_bytes",
    "fragments", "fragment_delay", "checkpointing", "attention", "operators", "dropout", "sequence_parallel",
    "reserve_bytes", "fragmentation", "gradient_dtype", "optimizer", "frozen_weights", "flush_every", "early_stop",
    "prefetch", "block_launch_s", "cut_by", "gradient_buffers",
))  # fmt: skip
"""Job options that can vary on a given plan but are not offered for trying.

``microbatch`` has separate controls. The others are set in the job's file.
"""
CHOOSES = "the planner chooses"
"""Text of the value None in controls of fields that a planner can choose."""
QUEUEING_OPTION = Option(
    name="queueing",
    help="Which messages wait for each other: those between the same two devices, or all at a device's NIC",
    choices=QUEUEING,
    default="pairs",
)


class SavedControls:
    """Settings of a pane that a workspace file keeps.

    A subclass sets ``_controls`` to {name: control} and ``_traits`` to {name: (view, name of its trait)}.
    """

    _controls: Mapping[str, w.ValueWidget] = MappingProxyType({})
    _traits: Mapping[str, tuple[traitlets.HasTraits, str]] = MappingProxyType({})

    def settings(self) -> dict[str, Any]:
        return values_of(self._controls) | {name: getattr(*place) for name, place in self._traits.items()}

    def restore(self, settings: Any) -> None:
        """Set all controls and traits to saved values. Ignore unknown or impossible values, and compute nothing."""
        restore_values(self._controls, settings)
        for name, (owner, trait) in self._traits.items():
            if isinstance(settings, Mapping) and name in settings:
                with suppress(traitlets.TraitError):
                    owner.set_trait(trait, settings[name])


class Panel(SavedControls):
    """The controls and views of one step. A subclass sets ``view`` and overrides the methods that apply to it."""

    view: w.Widget

    def redo(self) -> None:
        """Compute the step's result again, as its main button does."""

    def observe_edits(self, call: Callable[[], None]) -> None:
        """Call ``call`` when a setting changes that a workspace file keeps but ``LabState`` does not hold."""


def button(
    text: str, icon: str, tooltip: str, width: str = "105px", *, style: str = "", disabled: bool = False
) -> w.Button:
    """Return a button. ``style`` is an ipywidgets style, such as primary."""
    layout = w.Layout(width=width)
    return w.Button(description=text, icon=icon, tooltip=tooltip, button_style=style, disabled=disabled, layout=layout)


def labelled(kind: Callable[..., T], label: str, width: str, label_width: str, *value: Any, **options: Any) -> T:
    """Return a control of an ipywidgets class with a label in front of it. Widths are CSS lengths."""
    style, layout = {"description_width": label_width}, w.Layout(width=width)
    return kind(*value, description=label, style=style, layout=layout, **options)


def classed(widget: W, *css_classes: str) -> W:
    """Return the widget with these CSS classes."""
    for name in css_classes:
        widget.add_class(name)
    return widget


def pane(children: Sequence[w.Widget], *css_classes: str) -> w.VBox:
    """Return a pane with its widgets below each other. Its styles come with the lab, see ``markup.PANES_CSS``."""
    return classed(w.VBox(children), "dtfm-pane", *css_classes)


def toolbar(*children: w.Widget) -> w.HBox:
    """Return the row at the top of a pane."""
    return classed(w.HBox(children), "dtfm-toolbar")


def menu(label: str, width: str, label_width: str, options: Sequence[Any], tooltip: str, **given: Any) -> w.Dropdown:
    """Return a labelled menu of values, or of (text, value) pairs. Widths are CSS lengths."""
    return labelled(w.Dropdown, label, width, label_width, options=options, tooltip=tooltip, **given)


def segments(options: Sequence[Any], tooltips: Sequence[str], width: str = "auto", **given: Any) -> w.ToggleButtons:
    """Return a row of buttons, each with this CSS width. At most one is chosen: the value may be set to None."""
    return w.ToggleButtons(options=options, tooltips=tooltips, style={"button_width": width}, **given)


def checkbox(text: str, value: bool = False, tooltip: str = "", width: str = "auto") -> w.Checkbox:
    return w.Checkbox(value, description=text, tooltip=tooltip or None, indent=False, layout=w.Layout(width=width))


def toggle(text: str, tooltip: str = "") -> w.ToggleButton:
    return w.ToggleButton(description=text, tooltip=tooltip or None, layout=w.Layout(width="auto"))


def icon_button(icon: str, tooltip: str) -> w.Button:
    return w.Button(icon=icon, tooltip=tooltip, layout=w.Layout(width="40px", flex="none"))


def more_menu(children: Sequence[w.Widget], label: str, tooltip: str) -> w.HBox:
    """Return a button that opens a box of less used controls over the pane, so nothing moves when it opens.

    The label says what is in the box, because several such buttons are on the screen at once. The view ``top_bar``
    closes the box on Escape or a click elsewhere.
    """
    opener = toggle(label, tooltip)
    popover = classed(w.VBox(list(children), layout=w.Layout(display="none")), "dtfm-popover")
    opener.observe(lambda change: show(popover, change["new"]), "value")
    return classed(w.HBox([classed(opener, "dtfm-more-button"), popover]), "dtfm-more")


def disable(control: w.DOMWidget, why: str) -> None:
    """Disable a control and give the reason in its tooltip. An empty ``why`` enables it and restores its own
    tooltip."""
    # While a control is disabled, its tooltip is a reason already.
    if not control.disabled:
        control.own_tooltip = control.tooltip
    control.disabled = bool(why)
    control.tooltip = why or getattr(control, "own_tooltip", control.tooltip)


def spacer() -> w.Box:
    """Return an empty box that fills the space between the left and the right end of a row."""
    return w.Box(layout=w.Layout(flex="1 1 0"))


def show(widget: w.DOMWidget, shown: bool) -> None:
    widget.layout.display = "" if shown else "none"


def mark(widget: w.DOMWidget, css_class: str, marked: bool) -> None:
    """Add the CSS class to the widget, or remove it."""
    (widget.add_class if marked else widget.remove_class)(css_class)


def values_of(controls: Mapping[str, w.ValueWidget]) -> dict[str, Any]:
    return {name: control.value for name, control in controls.items()}


def restore_values(controls: Mapping[str, w.ValueWidget], values: object) -> None:
    """Set each control that ``values`` names. Ignore unknown names and impossible values."""
    if not isinstance(values, Mapping):
        return
    for name, control in controls.items():
        if name in values and _is_possible(control, values[name]):
            try:
                # Files of other versions may have values that are refused by now.
                control.value = values[name]
            except (traitlets.TraitError, TypeError, ValueError):
                continue


def _is_possible(control: w.ValueWidget, value: object) -> bool:
    """True if the value has the control's type and is within its bounds.

    ipywidgets would silently replace a number out of range by the nearest bound.
    """
    if isinstance(control, w.Dropdown | w.ToggleButtons):
        possible = [one[1] if isinstance(one, tuple) else one for one in control.options]
        # 1 equals True in Python, but a saved 1 does not fit a checkbox.
        return any(type(value) is type(one) and value == one for one in possible)
    if not isinstance(value, str | int | float) or isinstance(value, bool) != isinstance(control.value, bool):
        return False
    low, high = getattr(control, "min", None), getattr(control, "max", None)
    if low is None or high is None:
        return True
    return isinstance(value, int | float) and low <= value <= high


def tried_options() -> tuple[Option, ...]:
    """Return the job options that can be tried on a plan without another search. A new option of Job is included unless
    ``NOT_TRIED`` names it."""
    return tuple(option for option in options_of(JobOptions) if option.varies and option.name not in NOT_TRIED)


def label_of(option: Option) -> str:
    return LABELS.get(option.name) or option.name.replace("_", " ").capitalize()


def choice_words(option: str, name: str) -> str:
    """Return the text of a choice of an option."""
    return CHOICES.get(option, {}).get(name, name)


def choices_of(option: Option) -> list[tuple[str, str]]:
    """Return (text, name) of each choice of an option."""
    return [(choice_words(option.name, name), name) for name in option.choices or ()]


def control_for(
    option: Option, *, label: str = "", width: str = "", label_width: str = "", placeholder: str = ""
) -> w.ValueWidget:
    """Return a control with the option's default, bounds and choices, and with its help as tooltip.

    An option without choices gets a text field if it is a text, or a number that may be None. Empty means None.
    """
    label = label or label_of(option)
    narrow = label_width or f"{_label_px(label)}px"
    given: dict[str, Any] = {"description": label, "tooltip": option.help, "style": {"description_width": narrow}}
    if option.type is bool and not option.may_be_none:
        layout = w.Layout(width=width or "auto")
        return w.Checkbox(bool(option.default), description=label, tooltip=option.help, indent=False, layout=layout)
    given["layout"] = w.Layout(width=width or f"calc({narrow} + {'130px' if option.choices else '85px'})")
    # Only a planner chooses; other open fields have a usual value.
    unset = CHOOSES if option.name in LEFT_TO_PLANNERS else "as usual"
    if option.type is bool:
        return _dropdown([(unset, None), ("yes", True), ("no", False)], option.default, given)
    if option.choices is not None:
        offered = [*([(unset, None)] if option.may_be_none else []), *choices_of(option)]
        return _dropdown(offered, option.default, given)
    # A bounded field cannot be empty, which is how an open number is written.
    if option.type is int and not option.may_be_none:
        least = int(option.least or 0)
        return w.BoundedIntText(option.default or least, min=least, max=int(option.most or MOST_COUNT), step=1, **given)
    if option.type is float and not option.may_be_none:
        low, high = option.least if option.least is not None else option.above, option.most
        largest = sys.float_info.max  # the page's JSON has no infinity
        bounds = {"min": -largest if low is None else low, "max": largest if high is None else high}
        return w.BoundedFloatText(option.default or 0.0, **bounds, **given)
    given["layout"] = w.Layout(width=width or "330px")
    return w.Text("" if option.default is None else str(option.default), placeholder=placeholder, **given)


def _dropdown(options: list[tuple[str, Any]], default: Any, given: dict[str, Any]) -> w.Dropdown:
    """Return a menu in which None can be chosen. By itself, ipywidgets treats the value None as no choice at all."""
    values = [value for _, value in options]
    made = w.Dropdown(options=options, index=values.index(default), **given)
    if None in values:
        made.observe(lambda change: change["new"] is None and made.set_trait("index", values.index(None)), "value")
    return made


def _label_px(label: str) -> int:
    # A letter takes about 7 pixels.
    return max(38, 10 + 7 * len(label))


def controls_for(kind: Any, label_width: str = "") -> dict[str, w.ValueWidget]:
    """Return a control for each option of a dataclass, by its name. Their fields line up in one column.

    ``label_width`` is a CSS length, for a column shared with other controls. By default it fits the longest label.
    """
    options = options_of(kind)
    width = label_width or f"{max(_label_px(label_of(option)) for option in options)}px"
    return {option.name: control_for(option, label_width=width) for option in options}


def value_of(option: Option, control: w.ValueWidget) -> Any:
    """Return the control's value as the option's type. Empty text gives None if the option allows it.

    Raises LabError for text that should be a number.
    """
    value = control.value
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text and option.may_be_none:
        return None
    if option.type not in (int, float):
        return text
    try:
        return option.type(text)
    except ValueError:
        raise LabError(f"{option.name} is {value}; wanted a number") from None
