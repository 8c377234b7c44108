"""The views around the lab's panes: the bar, tabs, the inspector, the legend and the glossary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import traitlets

from dtfm_lab.widgets.markup import ALSO, WORDS
from dtfm_lab.widgets.views.view import View


class TopBar(View, page="top_bar"):
    """The bar above the lab. ``on_press`` is called with the name of what was pressed.

    The page itself opens the menus ``network``, ``job`` and ``more``: boxes of widgets with the class
    ``dtfm-menu-<name>`` anywhere in the lab. It also closes the menus of panes, sets ``dark``, handles the keys of the
    whole lab, and shows the lab in the whole window.

    When the kernel has ended, the page dims the lab. Its button runs ``again`` in a new kernel and puts the result into
    the lab's output. A page without a notebook is reloaded.

    If the page's address holds a link to a lab, ``on_link(link, again)`` is called. ``again`` is True if this tab has
    opened the link before. A click or a key sends {"kind": "ping"}. Until {"kind": "pong"} arrives, the page says that
    it waits for Python. The message {"kind": "copy", "link", "address"} makes the page copy the link, with ``address``
    or else the page's own address before it. The page then presses "copied" or "not-copied".

    To record a kill, the page presses "record-kill". Recording begins when {"kind": "kill", "why_not": ""} arrives. If
    ``why_not`` gives a reason, the page shows the reason instead.
    """

    network = traitlets.List(traitlets.Unicode(), ["", ""]).tag(sync=True)
    """Name of the network, and its size in words."""
    job = traitlets.List(traitlets.Unicode(), ["", ""]).tag(sync=True)
    """Name of the job, and its shape."""
    numbers = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{label, value, was, note, short, bad, word, under, ask, why} of each number, see ``shell.bar.bar_numbers``.

    ``word`` is its entry in the glossary.
    """
    headline = traitlets.Dict().tag(sync=True)
    """{lead, rest, kind, handle}, see ``shell.headline``.

    ``handle`` is {text, devices}: words of the sentence that stand for a device, or for the link between two. A click
    on them presses "handle", which selects it. It is empty if there is nothing to select.
    """
    step = traitlets.Dict().tag(sync=True)
    """{name, words, buttons} of the next step of the first minute, see ``shell.first_minute``.

    ``buttons`` are {name, label}; a click presses the name. The page hides the row once a person has closed it.
    """
    action = traitlets.Dict().tag(sync=True)
    """{name, label, why_not} of the next action."""
    live = traitlets.Bool(True).tag(sync=True)
    """True if every edit is followed by a new plan."""
    live_note = traitlets.Unicode("").tag(sync=True)
    """In words, how long the last plan took, or that a longer search still runs."""
    can_undo = traitlets.Bool(False).tag(sync=True)
    undo_label = traitlets.Unicode("").tag(sync=True)
    """The edit that *Undo* would undo."""
    dark = traitlets.Bool(False).tag(sync=True)
    """True if the page has a dark theme. Set by the page."""
    still = traitlets.Bool(False).tag(sync=True)
    """True for a read-only page: no menus, no *live*, no next action. Set at creation."""
    visitor = traitlets.Unicode("").tag(sync=True)
    """Random id of the page's visitor, the same after a reload. Set by the page."""
    shown_as = traitlets.Unicode("").tag(sync=True)
    """Id of the lab's Jupyter widget model. The page uses it to find the lab's output in the notebook."""
    again = traitlets.Unicode("").tag(sync=True)
    """Code that returns the saved lab. Empty if a notebook's lab is not saved."""

    def __init__(self, on_press: Callable[[str], None], **traits: Any) -> None:
        self._on_press = on_press
        self.on_link: Callable[[str, bool], None] = lambda link, again: None
        super().__init__(**traits)

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "press":
            self._on_press(str(content.get("name", "")))
        elif content.get("kind") == "link":
            self.on_link(str(content.get("link", "")), bool(content.get("again")))
        elif content.get("kind") == "ping":
            self.send({"kind": "pong"})


class TabsView(View, page="tabs"):
    """A row of tabs, some with pages. A click, an arrow key or a digit key sets ``value``.

    Panes with the same ``tab`` are its pages. A tab shows its last shown page. The page switches without Python:
    ``value`` and ``second`` appear on the row as ``data-panes`` and ``data-second``, which styles use.
    """

    label = traitlets.Unicode("").tag(sync=True)
    """What the tabs choose, for screen readers."""
    tabs = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{name, title, tab, kind, words} of each pane.

    ``tab`` is empty if the pane has its own tab, ``kind`` is one of open, done, stale, busy, and ``words`` is its
    tooltip.
    """
    value = traitlets.Unicode("").tag(sync=True)
    """Name of the chosen pane."""
    second = traitlets.Unicode("").tag(sync=True)
    """Name of the pane below it. Empty for none."""
    numbered = traitlets.Bool(False).tag(sync=True)
    """True if the keyboard's digits choose a tab."""

    def __init__(self, on_rendered: Callable[[], None] = lambda: None, **traits: Any) -> None:
        """``on_rendered`` is called when the page has had a moment to show the first pane."""
        self._on_rendered = on_rendered
        super().__init__(**traits)

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "rendered":
            self._on_rendered()


class Inspector(View, page="inspector"):
    """Shows ``facts``, see ``shell.inspection``. Its place and height are fixed, so that nothing jumps.

    ``on_link(ends, gbps, ms, phase)`` is called at every move of a link's slider. ``phase`` is begin, move or end.
    ``on_select(what)`` is called with {stage}, {devices} or, to clear the selection, {}. ``on_edit(key, text)`` is
    called with a field of the facts and its new text, or with ``why`` to ask why a device is in its place.
    """

    facts = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        on_link: Callable[[Sequence[str], float, float, str], None],
        on_select: Callable[[Mapping[str, Any]], None],
        on_edit: Callable[[str, str], None] = lambda key, text: None,
    ) -> None:
        self._on_link, self._on_select, self._on_edit = on_link, on_select, on_edit
        super().__init__()

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "link":
            self._on_link(content["ends"], float(content["gbps"]), float(content["ms"]), str(content["phase"]))
        elif content.get("kind") == "select":
            self._on_select(content)
        elif content.get("kind") == "edit":
            self._on_edit(str(content.get("key")), str(content.get("text", "")))


class Legend(View, page="legend"):
    """One line that explains colours, hatches and lines for all views of the lab."""

    n_stages = traitlets.Int(0).tag(sync=True)
    """Number of stages of the plan. 0 without a plan."""
    shortcuts = traitlets.Unicode("1–6 tabs · Space plays · F whole window · ? words").tag(sync=True)


class Glossary(View, page="glossary"):
    """Explains every element of the page that has ``data-word``, on hover and focus.

    While ``is_open`` is True, it lists all words.

    Views mark words with ``word`` of tools/js/shared/words.js, panels with ``dtfm_lab.widgets.markup.word``. One
    glossary serves the whole lab.
    """

    words = traitlets.Dict(WORDS).tag(sync=True)
    also = traitlets.Dict(ALSO).tag(sync=True)
    is_open = traitlets.Bool(False).tag(sync=True)
