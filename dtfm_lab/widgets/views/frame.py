"""The views of the frame around the lab's panes: the bar, tabs, the inspector, the legend and the glossary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import traitlets

from dtfm_lab.widgets.markup import ALSO, WORDS
from dtfm_lab.widgets.views.view import View


class TopBar(View, page="top_bar"):
    """Shows what its traits say; what is pressed goes to ``on_press`` by name.

    The page opens the menus ``network``, ``job`` and ``more`` by itself: boxes of widgets with the class
    ``dtfm-menu-<name>`` anywhere in the lab. It also closes the menus of panes, tells ``dark``, knows the keys that
    hold for the whole lab, and shows the lab in the whole window.

    When the kernel has ended, the page dims the lab and says so. Its button runs ``again`` in a new kernel and puts
    what that returns into the output of the lab; a page without a notebook is loaded again.

    A link to a lab that stands in the page's address goes to ``on_link``, with whether this tab has taken it before.
    A click or a key sends {"kind": "ping"}; while no {"kind": "pong"} comes, the page says that it waits for Python.
    The message {"kind": "copy", "link"} has the page copy one; it then says that "copied" or "not-copied" was pressed.
    """

    network = traitlets.List(traitlets.Unicode(), ["", ""]).tag(sync=True)
    """Name of the network, and what it consists of."""
    job = traitlets.List(traitlets.Unicode(), ["", ""]).tag(sync=True)
    """Name of the job, and its shape."""
    numbers = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{label, value, was, note, short, bad, word, under, ask} of each number; ``word`` is its entry in the glossary."""
    headline = traitlets.Dict().tag(sync=True)
    """{lead, rest, kind}, see ``shell.headline``."""
    action = traitlets.Dict().tag(sync=True)
    """{name, label, why_not} of the next action."""
    live = traitlets.Bool(True).tag(sync=True)
    """True if every edit is followed by a new plan."""
    live_note = traitlets.Unicode("").tag(sync=True)
    """How long the last plan took to find."""
    can_undo = traitlets.Bool(False).tag(sync=True)
    undo_label = traitlets.Unicode("").tag(sync=True)
    """What *Undo* would take back."""
    dark = traitlets.Bool(False).tag(sync=True)
    """True if the page has a dark theme; the page sets it."""
    still = traitlets.Bool(False).tag(sync=True)
    """True if it is only looked at: without menus, *live* and the next action. Set when made."""
    visitor = traitlets.Unicode("").tag(sync=True)
    """Who looks at the page: random, the same after a reload; the page sets it."""
    shown_as = traitlets.Unicode("").tag(sync=True)
    """The model id of the lab, by which its output is found in a notebook."""
    again = traitlets.Unicode("").tag(sync=True)
    """Code that returns the lab as it was kept; empty if a notebook's lab is not kept."""

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

    def alt_text(self) -> str:
        said = [f"{n['label']} {n['value']}" for n in self.numbers]
        return " · ".join([*filter(None, self.network[:1]), *said, str(self.headline.get("lead", ""))])


class TabsView(View, page="tabs"):
    """A row of tabs, some with pages; a click, an arrow key or the page's digits set ``value``.

    Panes with the same ``tab`` are its pages. The tab shows the page that was shown last. The page switches by itself:
    ``value`` and ``second`` stand on the row as ``data-panes`` and ``data-second``, from which styles follow.
    """

    label = traitlets.Unicode("").tag(sync=True)
    """What the tabs choose, for screen readers."""
    tabs = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{name, title, tab, kind, words} of each pane; ``tab`` is empty for a tab of its own, ``kind`` is one of open,
    done, stale, busy, and ``words`` its tooltip."""
    value = traitlets.Unicode("").tag(sync=True)
    """Name of the pane that is chosen."""
    second = traitlets.Unicode("").tag(sync=True)
    """Name of the pane that is shown below it; empty for none."""
    numbered = traitlets.Bool(False).tag(sync=True)
    """True if digits of the keyboard choose."""

    def __init__(self, on_rendered: Callable[[], None] = lambda: None, **traits: Any) -> None:
        """``on_rendered`` is called when the page has had a moment to show the first pane."""
        self._on_rendered = on_rendered
        super().__init__(**traits)

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "rendered":
            self._on_rendered()

    def alt_text(self) -> str:
        return f"{self.label}: {self.value}"


class Inspector(View, page="inspector"):
    """Shows ``facts``, see ``shell.inspection``; it has a fixed place and height, so that nothing jumps.

    ``on_link(ends, gbps, ms, phase)`` is called at every move of a link's slider, with ``phase`` one of begin, move and
    end; ``on_select(what)`` with {stage}, {devices} or {} to let go of the selection; ``on_edit(key, text)`` with a
    field of the facts and what was entered, or ``why`` to ask why a device is where it is.
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

    def alt_text(self) -> str:
        return f"{self.facts.get('title', '')}: {self.facts.get('hint', '')}"


class Legend(View, page="legend"):
    """One line that says what colours, hatches and lines mean in every view of the lab."""

    n_stages = traitlets.Int(0).tag(sync=True)
    """Stages of the plan; 0 while there is none."""
    shortcuts = traitlets.Unicode("1–6 tabs · Space plays · F whole window · ? words").tag(sync=True)

    def alt_text(self) -> str:
        return "forward, backward, averaging; hatched: waits; link width is bandwidth, dashes are latency"


class Glossary(View, page="glossary"):
    """Explains every element of the page with ``data-word`` on hover and focus; ``is_open`` lists all.

    Views mark words with ``word`` of tools/js/shared/words.js, panels with ``dtfm_lab.widgets.markup.word``. One
    glossary serves the whole lab.
    """

    words = traitlets.Dict(WORDS).tag(sync=True)
    also = traitlets.Dict(ALSO).tag(sync=True)
    is_open = traitlets.Bool(False).tag(sync=True)

    def alt_text(self) -> str:
        return f"{len(self.words)} words explained"
