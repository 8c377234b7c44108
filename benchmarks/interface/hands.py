"""Edits that a person makes by hand, each chosen at random where there are several ways."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from lab_page import LabPage

DEVICES = """() => {
    const cy = document.querySelector(".dtfm-editor .dtfm-stage")._cyreg.cy;
    const seen = ({ x, y }) => x > 20 && y > 20 && x < cy.width() - 20 && y < cy.height() - 20;
    return cy.nodes().filter((one) => one.id().startsWith("device:") && seen(one.renderedPosition()))
        .map((one) => one.id().slice("device:".length));
}"""
FREE = (0.08, 0.5, 0.92), (0.1, 0.9)
"""Shares of the canvas' width and height at which a device is added."""
JOBS = ("tiny", "small", "gpt2-medium")
BATCHES = ("8", "12", "16", "32", "48", "64")
SHORT_MS = 8000
TABS = ("Schedule", "Groups", "Search", "What if", "worth", "Run", "Systems", "Hours", "Course")


class Impossible(Exception):
    """There is nothing to do this edit on now."""


class Hands:
    """A person's edits of one lab. Each returns what was done, or raises Impossible."""

    def __init__(self, lab: LabPage, chance: random.Random) -> None:
        self.lab, self.page, self.chance = lab, lab.page, chance
        self.edits: list[tuple[Callable[[], str], int]] = [
            (self.drag_link, 9),
            (self.key_link, 2),
            (self.slide_link, 3),
            (self.delete_device, 3),
            (self.add_device, 3),
            (self.change_device, 3),
            (self.swap_devices, 2),
            (self.undo, 6),
            (self.redo, 3),
            (self.choose_job, 2),
            (self.choose_shape, 4),
            (self.set_batch, 3),
            (self.choose_microbatch, 2),
            (self.choose_schedule, 3),
            (self.choose_objective, 2),
            (self.choose_timeline, 2),
            (self.what_if, 4),
            (self.worth, 1),
            (self.select, 2),
            (self.show_tab, 6),
        ]

    def one(self) -> str:
        """Make a random edit that is possible now."""
        for _ in range(20):
            edits, weights = zip(*self.edits, strict=True)
            edit = self.chance.choices(edits, weights)[0]
            try:
                return edit()
            except Impossible:
                self.leave()
        raise Impossible("no edit is possible")

    def leave(self) -> None:
        """Close what is open, and point at nothing."""
        self.page.keyboard.press("Escape")
        if self.lab.root.locator(".dtfm-menu.dtfm-open").count():
            self.lab.close_menu()
        self.page.mouse.move(2, 2)

    def _labels(self) -> list:
        labels = self.lab.root.locator(".dtfm-picture .dtfm-link[role=slider]:visible").all()
        if not labels:
            raise Impossible
        return labels

    def drag_link(self) -> str:
        label = self.chance.choice(self._labels())
        name, box = label.get_attribute("aria-label"), label.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        along = self.chance.choice((-160, -90, -40, 40, 90, 160))
        dx, dy = (along, 0) if self.chance.random() < 0.7 else (0, along / 2)
        self.lab.drag((x, y), (x + dx, y + dy))
        return f"drag {name.partition(':')[0]} by {dx}, {dy}"

    def key_link(self) -> str:
        label = self.chance.choice(self._labels())
        label.focus()
        key = self.chance.choice(("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"))
        for _ in range(self.chance.randint(1, 4)):
            label.press(key)
        self.page.wait_for_timeout(1000)  # the keys end their gesture by themselves
        return f"{key} on {(label.get_attribute('aria-label') or '').partition(':')[0]}"

    def slide_link(self) -> str:
        self.chance.choice(self._labels()).click()
        sliders = self.lab.inspector.get_by_role("slider")
        if self.lab.inspector.get_attribute("data-kind") != "link" or not sliders.count():
            raise Impossible
        slider, key = sliders.nth(self.chance.randint(0, 1)), self.chance.choice(("ArrowLeft", "ArrowRight"))
        slider.focus()
        for _ in range(self.chance.randint(2, 12)):
            slider.press(key)
        return f"{key} on the slider {slider.get_attribute('aria-label')}"

    def _devices(self) -> list[str]:
        self.lab.picture("Rows")
        names: list[str] = self.page.evaluate(DEVICES)
        if not names:
            raise Impossible
        return names

    def _select(self) -> str:
        name = self.chance.choice(self._devices())
        self.lab.click(self.lab.where(name))
        return name

    def delete_device(self) -> str:
        if len(self._devices()) <= 4:
            raise Impossible
        name = self._select()
        self.page.keyboard.press("Delete")
        return f"delete {name}"

    def add_device(self) -> str:
        self._devices()
        box = self.lab.stage.bounding_box()
        assert box is not None
        across, down = (self.chance.choice(shares) for shares in FREE)
        self.lab.root.get_by_role("button", name="Add device", exact=True).first.click()
        self.lab.click(self.lab.at(across * box["width"], down * box["height"]))
        self.page.keyboard.press("v")
        return f"add a device at {across}, {down}"

    def change_device(self) -> str:
        name = self._select()
        fields = self.lab.inspector.locator(".dtfm-inspector-fields")
        if not fields.is_visible():
            raise Impossible
        if self.chance.random() < 0.6:
            gpu = self.chance.choice(fields.locator("option").all_inner_texts())
            fields.locator("select").select_option(gpu)
            return f"{name} becomes a {gpu}"
        label, value = self.chance.choice((("Price", "1.5"), ("Uplink", "0.3"), ("Uplink", "")))
        self.lab.fill(fields.get_by_label(re.compile(f"^{label}")), value)
        return f"{label} of {name}: {value or 'nothing'}"

    def swap_devices(self) -> str:
        names = self._devices()
        if len(names) < 2:
            raise Impossible
        one, other = self.chance.sample(names, 2)
        self.lab.drag(self.lab.where(one), self.lab.where(other))
        return f"drop {one} on {other}"

    def undo(self) -> str:
        button = self.lab.root.locator(".dtfm-headline").get_by_role("button", name="Undo", exact=True)
        if not button.is_visible():
            raise Impossible
        button.click()
        return "undo"

    def redo(self) -> str:
        self._devices()
        button = self.lab.root.locator(".dtfm-editor .dtfm-tools").get_by_role("button", name=re.compile("^Redo"))
        if not button.count() or button.first.get_attribute("aria-disabled") == "true":
            raise Impossible
        button.first.click()
        return "redo"

    def _choose(self, label: str, among: tuple[str, ...] = ()) -> str:
        job = self.lab.menu("job")
        field = job.get_by_label(label, exact=True)
        options = among or tuple(field.locator("option").all_inner_texts())
        if not options:
            raise Impossible
        value = self.chance.choice(options)
        field.select_option(value)
        self.lab.close_menu()
        return f"{label}: {value}"

    def choose_job(self) -> str:
        return self._choose("Job", JOBS)

    def choose_shape(self) -> str:
        return self._choose("Shape")

    def choose_microbatch(self) -> str:
        return self._choose("Micro-batch")

    def choose_schedule(self) -> str:
        return self._choose("Schedule")

    def set_batch(self) -> str:
        value = self.chance.choice(BATCHES)
        field = self.lab.menu("job").get_by_label("Batch", exact=True)
        self.lab.fill(field, value)
        self.lab.close_menu()
        return f"Batch: {value}"

    def choose_objective(self) -> str:
        search, aim = self.lab.pane("Search"), self.chance.choice(("Seconds", "Dollars"))
        button = search.get_by_role("button", name=aim, exact=True)
        if not button.is_visible() or button.is_disabled():
            raise Impossible
        button.click()
        self.page.wait_for_timeout(400)
        prices = search.get_by_role("button", name="Use typical prices")
        if prices.is_visible():
            prices.click()
            aim = f"{aim}, typical prices"
        return aim

    def choose_timeline(self) -> str:
        menu = self.lab.pane("Schedule").locator(".dtfm-schedule-menu select")
        value = self.chance.choice(menu.locator("option").all_inner_texts())
        menu.select_option(value)
        return f"the time line under {value}"

    def what_if(self) -> str:
        pane = self.lab.pane("What if")
        sliders = [one for one in pane.get_by_role("slider").all() if one.is_enabled()]
        if not sliders:
            raise Impossible
        slider, key = self.chance.choice(sliders), self.chance.choice(("ArrowLeft", "ArrowRight"))
        for _ in range(self.chance.randint(1, 5)):
            slider.press(key)
        self.page.wait_for_timeout(600)
        use = pane.get_by_role("button", name=re.compile("^Use"))
        if self.chance.random() < 0.4 and use.is_visible() and use.is_enabled():
            use.click()
            return f"{key} on {slider.get_attribute('aria-label')}, used"
        return f"{key} on {slider.get_attribute('aria-label')}"

    def worth(self) -> str:
        rows = self.lab.pane("worth").locator(".dtfm-worth-row:visible").all()
        if not rows:
            raise Impossible
        self.chance.choice(rows[:6]).click()
        return "a row of Worth"

    def select(self) -> str:
        if self.chance.random() < 0.3:
            self.page.keyboard.press("Escape")
            stages = self.lab.inspector.locator(".dtfm-pipeline-stage").all()
            if not stages:
                raise Impossible
            self.chance.choice(stages).click()
            return "select a stage"
        return f"select {self._select()}"

    def show_tab(self) -> str:
        title = self.chance.choice(TABS)
        self.lab.pane(title)
        return f"the tab {title}"
