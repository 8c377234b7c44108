"""The lab on the page, as a person's hands know it."""

import os
import re
from pathlib import Path


class LabPage:
    """Where things are in the lab on the page."""

    def __init__(self, page, name):
        self.page, self.name, self.n_shots = page, name, 0
        self.stage = page.locator(".dtfm-editor .dtfm-stage").first
        self.stage.locator("canvas").first.wait_for()
        self.stage.scroll_into_view_if_needed()
        page.wait_for_timeout(500)

    def section(self, name):
        return self.page.locator(f".dtfm-section-{name}")

    def tool(self, name):
        self.page.locator(".dtfm-toolbar").first.get_by_role("button", name=name, exact=True).click()

    def press(self, name, section="", *, last=True):
        """A button of the lab's own, by its text: its icon is part of its accessible name.

        ``section`` is where it is, None: over all sections; there may be several of a name.
        """
        inside = f".dtfm-section-{section} " if section else ".dtfm-lab > " if section is None else ".dtfm-lab "
        scope = self.page.locator(f"{inside}.widget-hbox" if section is None else inside.strip())
        buttons = scope.locator("button", has_text=re.compile(rf"^\s*{name}\s*$"))
        (buttons.last if last else buttons.first).click()

    def at(self, x, y):
        box = self.stage.bounding_box()
        return box["x"] + x, box["y"] + y

    def click(self, x, y, modifiers=()):
        for key in modifiers:
            self.page.keyboard.down(key)
        self.page.mouse.click(*self.at(x, y))
        for key in modifiers:
            self.page.keyboard.up(key)
        self.page.wait_for_timeout(150)

    def drag(self, start, end):
        self.page.mouse.move(*self.at(*start))
        self.page.mouse.down()
        self.page.mouse.move(*self.at(*end), steps=12)
        self.page.wait_for_timeout(100)
        self.page.mouse.up()
        self.page.wait_for_timeout(200)

    def fill(self, label, value):
        field = self.page.locator(".dtfm-editor").get_by_label(label).first
        field.fill(value)
        field.press("Enter")
        self.page.wait_for_timeout(150)

    def look(self, state, at=None):
        """Keep a picture, where the environment asks for some."""
        folder = os.environ.get("DTFM_SCREENSHOTS")
        if folder is None:
            return
        if at is not None:
            self.page.locator(at).first.scroll_into_view_if_needed()
            self.page.wait_for_timeout(300)
        self.n_shots += 1
        self.page.screenshot(path=Path(folder) / f"{self.name}-{self.n_shots:02d}-{state}.png")
