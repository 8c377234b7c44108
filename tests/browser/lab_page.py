"""The lab on the page, as a person's hands and eyes know it: by names and labels, rarely by positions."""

import os
import re
import time
from pathlib import Path

from serving import PATIENCE_MS, PATIENCE_S, ask

FRAME = {
    "bar": ".dtfm-bar",
    "headline": ".dtfm-headline",
    "cause": ".dtfm-cause",
    "effect": ".dtfm-effect",
    "picture": ".dtfm-picture",
    "inspector": ".dtfm-inspector",
    "foot": "[aria-label=Legend]",
}
"""What never moves, by its selector in the lab."""
BOXES = """(frame) => Object.fromEntries(Object.entries(frame).map(([name, selector]) => {
    const { x, y, width, height } = document.querySelector(`.dtfm-lab ${selector}`).getBoundingClientRect();
    return [name, [x, y, width, height]];
}))"""
SCROLLED = """() => [
    document.scrollingElement, ...document.querySelectorAll(".jp-WindowedPanel-outer, .dtfm-lab, .dtfm-panes"),
].map((one) => one.scrollTop)"""
OUTSIDE = """() => {
    const { scrollWidth, scrollHeight } = document.scrollingElement;
    return [scrollWidth - innerWidth, scrollHeight - innerHeight];
}"""
BADGE = """(name) => document.querySelector(".dtfm-editor .dtfm-stage")._cyreg.cy.getElementById(`device:${name}`)
    .renderedPosition()"""
PLACES = {
    "Schedule": ("Plan", "Timeline", "schedule"),
    "Groups": ("Plan", "Groups", "groups"),
    "Search": ("Search", "", "plan"),
    "What if": ("What if", "Sliders", "what-if"),
    "Run": ("Run", "Run", "run"),
    "Compare": ("Run", "Compare", "compare"),
    "Systems": ("Systems", "Ranking", "systems"),
    "Advice": ("Systems", "Rent or own", "advice"),
    "Hours": ("Systems", "Hours", "hours"),
    "Course": ("Learn", "Course", "course"),
}
"""The tab and the page of each pane, and its name in Python."""
TABS = list(dict.fromkeys(tab for tab, _, _ in PLACES.values()))
AT_REST = "print(the_lab.replanning._task is None and the_lab.predicted is not None)"


class LabPage:
    """Where things are in the lab, and what a person does with them.

    ``look`` is called after every step: it keeps a picture where the environment asks for some, and holds the lab to
    its word that nothing scrolls and nothing jumps.
    """

    def __init__(self, page, name):
        self.page, self.name, self.n_shots = page, name, 0
        self.root = page.locator(".dtfm-lab").first
        self.root.locator(".dtfm-bar").wait_for()
        self.root.locator(FRAME["foot"]).wait_for()
        self.headline = self.root.locator(".dtfm-headline .dtfm-sentence")
        self.next = self.root.locator(".dtfm-bar .dtfm-go")
        page.wait_for_timeout(500)
        self._boxes, self._scrolled = self.boxes(), self.scrolled()

    # What stays.

    def boxes(self):
        return self.page.evaluate(BOXES, FRAME)

    def scrolled(self):
        return self.page.evaluate(SCROLLED)

    def settle(self):
        """From now on the frame is held to where it is: the window has another size, or another part of it."""
        self.page.wait_for_timeout(500)
        self._boxes, self._scrolled = self.boxes(), self.scrolled()

    def keep(self, state):
        """Keep a picture, where the environment asks for some."""
        self.n_shots += 1
        if folder := os.environ.get("DTFM_SCREENSHOTS"):
            path = Path(folder) / f"{self.name}-{self.n_shots:02d}-{state}.png"
            self.page.screenshot(path=path)

    def look(self, state):
        """Keep a picture; nothing has scrolled, nothing has jumped."""
        self.keep(state)
        boxes = self.boxes()
        moved = {name: (before, boxes[name]) for name, before in self._boxes.items() if before != boxes[name]}
        assert moved == {}, f"at {state}, (before, now): {moved}"
        assert self.scrolled() == self._scrolled, f"at {state} something was scrolled"
        assert max(self.page.evaluate(OUTSIDE)) <= 0, f"at {state} the page is larger than its window"

    # The bar.

    def whole_window(self):
        self.root.get_by_role("button", name="Whole window").click()
        self.page.locator(".dtfm-lab.dtfm-window").wait_for()
        self.settle()

    def number(self, label):
        """One of the bar's numbers without its note, such as ``456 ms``, or ``1.464 s → 456 ms`` after an edit."""
        found = self.root.locator(".dtfm-number").filter(has_text=label).first.locator(".dtfm-number-value")
        return found.evaluate("(one) => [...one.childNodes].filter((part) => !['EM', 'BUTTON'].includes(part.nodeName))"
                              ".map((part) => part.textContent).join('')")  # fmt: skip

    def at_rest(self):
        """Wait until no search is looking for a better plan, and the page has heard of it."""
        deadline, quiet = time.monotonic() + PATIENCE_S, 0
        while quiet < 2:  # an edit takes a moment to begin a search
            assert time.monotonic() < deadline, "a search goes on"
            self.page.wait_for_timeout(250)
            quiet = quiet + 1 if ask(self.page, AT_REST) == "True" else 0

    def settled(self, label):
        """One of the bar's numbers once nothing changes it any more."""
        self.at_rest()
        return self.number(label)

    def press_next(self, label):
        """The one filled button, when it says this."""
        self.page.wait_for_function(
            "(label) => document.querySelector('.dtfm-lab .dtfm-go').textContent === label", arg=label
        )
        self.next.click()

    def menu(self, name):
        """Open the menu of the network, of the job, or of what is rarer (``more``)."""
        self.root.locator(f".dtfm-bar [data-menu={name}]").click()
        box = self.root.locator(f".dtfm-menu-{name}")
        box.wait_for()
        self.page.wait_for_timeout(200)
        return box

    def close_menu(self):
        """A click elsewhere."""
        box = self._boxes["foot"]
        self.page.mouse.click(box[0] + box[2] - 4, box[1] + box[3] / 2)
        self.root.locator(".dtfm-menu.dtfm-open").wait_for(state="hidden")

    # The panes.

    def pane(self, title):
        """Show a result by its tab and page; returns its part of the page."""
        tab, page, _ = PLACES.get(title, (title, "", title.lower()))
        self.root.get_by_role("tablist", name="Results").get_by_role("tab", name=re.compile(f"^{tab}")).click()
        if self.pages.first.is_visible():
            self.pages.filter(has_text=page).first.click()
        return self.shown(title)

    def key_pane(self, title):
        """Show a result by the digit of its tab, and arrows among its pages."""
        tab, page, _ = PLACES[title]
        self.page.keyboard.press(str(1 + TABS.index(tab)))
        self.page.wait_for_timeout(200)
        chosen = self.pages.and_(self.root.locator("[aria-selected=true]"))
        for _ in range(self.pages.count()):
            if page in chosen.inner_text():
                break
            chosen.focus()
            self.page.keyboard.press("ArrowRight")
        return self.shown(title)

    @property
    def pages(self):
        return self.root.locator(".dtfm-pages .dtfm-page")

    def shown(self, title):
        """Wait for a result; its part of the page."""
        name = PLACES[title][2] if title in PLACES else title.lower()
        out = self.root.locator(f".dtfm-out-{name}")
        out.wait_for()
        self.page.wait_for_timeout(300)
        return out

    def more(self, within):
        """Open the box of rarer controls in a part of the page."""
        within.locator(".dtfm-more-button:visible").last.click()
        box = within.locator(".dtfm-popover:visible").last
        box.wait_for()
        return box

    def picture(self, title):
        """Show the network as Map, Rows or Matrix."""
        if title == "Matrix":
            self.more(self.root.locator(".dtfm-cause")).get_by_role("button", name="Matrix").click()
            self.page.keyboard.press("Escape")
            self.page.wait_for_timeout(500)
            return
        self.root.get_by_role("tablist", name="Views of the network").get_by_role("tab", name=title).click()
        self.page.wait_for_timeout(500)

    @property
    def inspector(self):
        return self.root.locator(".dtfm-inspector")

    # The canvas and the map.

    @property
    def stage(self):
        return self.root.locator(".dtfm-editor .dtfm-stage").first

    def at(self, x, y):
        """Of a place on the canvas, its place on the page."""
        box = self.stage.bounding_box()
        return box["x"] + x, box["y"] + y

    def where(self, device):
        """The middle of a device on the canvas, on the page."""
        place = self.page.evaluate(BADGE, device)
        return self.at(place["x"], place["y"])

    def click(self, place, modifiers=()):
        for key in modifiers:
            self.page.keyboard.down(key)
        self.page.mouse.click(*place)
        for key in modifiers:
            self.page.keyboard.up(key)
        self.page.wait_for_timeout(150)

    def drag(self, start, end, *, look=""):
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*end, steps=12)
        self.page.wait_for_timeout(400 if look else 100)
        if look:
            self.look(look)
        self.page.mouse.up()
        self.page.wait_for_timeout(200)

    def link(self, name):
        """The label of a link, which is a slider of its bandwidth."""
        return self.root.get_by_role("slider", name=re.compile(f"^Link {name}")).first

    def drag_link(self, name, dx, *, look=""):
        """Drag a link's label sideways: 130 px are a factor of ten."""
        box = self.link(name).bounding_box(timeout=PATIENCE_MS)
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.drag((x, y), (x + dx, y), look=look)

    def fill(self, field, value):
        field.fill(value)
        field.press("Enter")
        self.page.wait_for_timeout(150)
