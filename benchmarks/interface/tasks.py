"""What a newcomer wants, done by hand on the page: five things timed, two counted in clicks. Nothing is read from the
kernel meanwhile.

Each begins with the lab open and at rest, and ends when the page itself says what was wanted. A hand rests a second
before each of its moves, to look for where it goes. With ``DTFM_SCREENSHOTS=folder`` a picture is kept of each end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

from browser import Figure, LabInBrowser
from lab_page import LabPage

MINUTE_S = 60.0
MOST_CLICKS = 3
LOOKING_MS = 1000
PATIENCE_MS = 90_000
STAYS = re.compile("the plan stays", re.IGNORECASE)


def tasks(browser: LabInBrowser) -> Iterator[Figure]:
    for task in TASKS:
        yield _timed(browser, *task)
    for counted in CLICKED:
        yield _clicked(browser, *counted)


def _timed(browser: LabInBrowser, name: str, network: str, pane: str, task: Callable[[LabPage], str]) -> Figure:
    browser.open_lab(network, pane)
    lab = LabPage(browser.page, f"task-{task.__name__}")
    lab.whole_window()
    began = time.monotonic()
    try:
        answer = task(lab)
    except Exception:
        lab.keep("failed")
        raise
    took_s = time.monotonic() - began
    lab.keep("done")
    return Figure(name, took_s, "s", MINUTE_S, note=answer)


def _clicked(browser: LabInBrowser, name: str, network: str, task: Callable[[LabPage], str]) -> Figure:
    browser.open_lab(network)
    lab = LabPage(browser.page, f"task-{task.__name__}")
    lab.whole_window()
    lab.page.evaluate("() => { window.clicks = 0; addEventListener('click', () => { window.clicks += 1; }, true); }")
    answer = task(lab)
    lab.keep("done")
    return Figure(name, lab.page.evaluate("window.clicks"), "clicks", MOST_CLICKS + 1, note=answer)


def _look(lab: LabPage) -> None:
    lab.page.wait_for_timeout(LOOKING_MS)


def slowed(lab: LabPage) -> str:
    """The label of all links that are not drawn is pulled to the left until the sentence tells who moved."""
    before = lab.headline.inner_text()
    for _ in range(8):
        _look(lab)
        lab.drag_link("pairs without a line", -40)
        lab.page.wait_for_function(
            "(before) => document.querySelector('.dtfm-headline .dtfm-sentence').innerText !== before", arg=before
        )
        lab.at_rest()
        before = lab.headline.inner_text()
        if "→" in before and not STAYS.search(before):
            break
    return before


def bound_by(lab: LabPage) -> str:
    """The tab Schedule, whose sentence says what binds."""
    _look(lab)
    lab.pane("Schedule")
    lab.page.wait_for_function("/binds?,/.test(document.querySelector('.dtfm-headline .dtfm-sentence').innerText)")
    _look(lab)
    return lab.headline.inner_text()


def cheaper(lab: LabPage) -> str:
    """The button beside the price, and the cheapest of the points that it finds."""
    _look(lab)
    lab.page.get_by_role("button", name="cheaper?", exact=True).click()
    search = lab.pane("Search")
    search.get_by_role("button", name="Find frontier", exact=True).wait_for(state="hidden")
    search.get_by_role("button", name="Find frontier", exact=True).wait_for(timeout=PATIENCE_MS)
    _look(lab)
    points = search.locator("[data-point]")
    first = points.first.get_attribute("aria-label")
    last = points.last.get_attribute("aria-label")
    points.last.click()
    search.locator("[data-point][aria-pressed=true]").wait_for()
    return f"{first} -> {last}"


def killed(lab: LabPage) -> str:
    """Run it for real, Disturb, Kill; what happened tells what was lost."""
    _look(lab)
    run = lab.pane("Run")
    _look(lab)
    lab.next.click()
    run.get_by_text(re.compile(r"iteration \d+, loss")).first.wait_for(timeout=PATIENCE_MS)
    _look(lab)
    run.get_by_role("button", name=re.compile("^Disturb")).click()
    _look(lab)
    lab.page.get_by_role("menuitem", name=re.compile("^Kill")).dispatch_event("click")  # drawn anew as the run goes on
    lost = run.get_by_text(re.compile("training continues, .* lost"))
    lost.wait_for(timeout=PATIENCE_MS)
    _look(lab)
    return lost.inner_text()


def mailed(lab: LabPage) -> str:
    """Save, share, Page: a file that is the plan, for anybody's browser."""
    _look(lab)
    more = lab.menu("more")
    _look(lab)
    more.get_by_role("button", name="Save page").click()
    said = more.get_by_text(re.compile(r"\.html"))
    said.last.wait_for(timeout=PATIENCE_MS)
    _look(lab)
    return said.last.inner_text()


def worth_of_a_link(lab: LabPage) -> str:
    """The link that the headline names; the inspector says what a better one would save."""
    lab.headline.locator(".dtfm-handle").click()
    saved = lab.inspector.get_by_text(re.compile("saves"))
    saved.first.wait_for(timeout=PATIENCE_MS)
    return saved.first.inner_text()


def dollars(lab: LabPage) -> str:
    """Search, Dollars, and typical prices, as no device has one; the bar then has a price."""
    search = lab.pane("Search")
    search.get_by_role("button", name="Dollars", exact=True).click()
    search.get_by_role("button", name="Use typical prices").click()
    lab.page.wait_for_function("/Price/.test(document.querySelector('.dtfm-numbers').innerText)", timeout=PATIENCE_MS)
    return lab.number("Price")


CLICKED = (
    ("what a faster link would save", "lecture-hall", worth_of_a_link),
    ("plan for dollars", "campus", dollars),
)
"""What is asked, the network, and how."""
TASKS = (
    ("slow the network until the plan changes", "lecture-hall", "schedule", slowed),
    ("find what binds", "lecture-hall", "plan", bound_by),
    ("make it cheaper", "volunteers", "schedule", cheaper),
    ("kill a worker, tell what it cost", "lecture-hall", "schedule", killed),
    ("mail the plan to somebody", "worldwide", "schedule", mailed),
)
"""What is done, the network, the pane that is open, and how."""
