"""``make pictures``: stills and a moving picture of the lab, made by driving it in a browser as a person would.

In JupyterLab in a headless Chromium: 64 GPUs in eight cities are planned for two batches. Eight laptops are planned,
train for real, one of them is killed, and the measurement is compared with the prediction. This writes
tools/pictures/lab-light.png and lab-dark.png, and the moving lab-light.webp and lab-dark.webp of about half a minute,
which leave out waiting. docs/pictures/screen.png has a number on each part of the screen. tour.png is a moment of the
first iteration in the tour's lab, for its notebook.

    python -m tools.screenshots [--theme light|dark|both] [--keep-frames FOLDER] [--tour]
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from tools.moving import Recorder
from tools.still_pictures import with_palette

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
from lab_page import LabPage
from serving import ask, chromium, fresh_page, jupyter_server

PICTURES = ROOT / "tools" / "pictures"
SCREEN = ROOT / "docs" / "pictures" / "screen.png"
SIZE = {"width": 1280, "height": 760}
SMALL = {"width": 980, "height": 660}
"""of tour.png, which is shown in a notebook's cell"""
PATIENCE_S = 180
ITERATIONS = 16
"""Iterations after which the run is stopped by hand."""
LARGE_BATCH = 512
"""At this batch, the planner of ``worldwide`` puts whole pipelines into cities. At 64, each city is one stage."""
CURSOR = """() => {
    const hand = document.createElement("div");
    hand.style.cssText = `position: fixed; z-index: 99999; width: 18px; height: 18px; margin: -9px; border-radius: 50%;
        background: rgba(230, 80, 40, 0.55); border: 2px solid #fff; pointer-events: none; left: -50px; top: -50px`;
    document.body.append(hand);
    addEventListener("mousemove", ({ clientX, clientY }) => {
        [hand.style.left, hand.style.top] = [`${clientX}px`, `${clientY}px`];
    }, true);
    addEventListener("mousedown", () => { hand.style.background = "rgba(230, 80, 40, 1)"; }, true);
    addEventListener("mouseup", () => { hand.style.background = "rgba(230, 80, 40, 0.55)"; }, true);
}"""
"""A headless browser draws no pointer."""
TOUR = "lab.Lab('lecture-hall', 'tiny', autosave=False)"
STORY = "lab.Lab('worldwide', autosave=False)"
PARTS = (
    ".dtfm-bar [data-menu=network]",
    ".dtfm-bar .dtfm-numbers",
    ".dtfm-bar .dtfm-go",
    ".dtfm-headline",
    ".dtfm-picture",
    ".dtfm-inspector",
    "[role=tablist][aria-label=Results]",
    ".dtfm-panes .dtfm-gantt",
    "[aria-label=Legend]",
)
"""Parts of the screen in the order of the list in docs/lab.md."""
NUMBER = """([selector, number]) => {
    const box = document.querySelector(`.dtfm-lab ${selector}`).getBoundingClientRect();
    const mark = document.createElement("div");
    mark.textContent = number;
    mark.style.cssText = `position: fixed; z-index: 99999; width: 24px; height: 24px; border-radius: 50%;
        background: #d9480f; color: #fff; font: 700 14px/24px system-ui, sans-serif; text-align: center;
        box-shadow: 0 0 0 2px #fff; left: ${box.left + box.width / 2 - 12}px; top: ${Math.max(3, box.top - 12)}px`;
    document.querySelector('.dtfm-lab').append(mark);
}"""
MOMENT = "640"
"""Thousandths of the iteration that tour.png shows."""
PLANNED = "the_lab.plan is not None and not the_lab.lab_state.plan_is_stale"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--theme", choices=["light", "dark", "both"], default="both")
    parser.add_argument("--keep-frames", type=Path, help="a folder for a picture of each second, to look at")
    parser.add_argument("--tour", action="store_true", help="take tour.png alone")
    asked = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dtfm-pictures-") as folder, lab_in_a_browser(Path(folder), TOUR) as page:
        (PICTURES / "tour.png").write_bytes(with_palette(played(page), 128))
    if asked.tour:
        return
    for theme in ("light", "dark") if asked.theme == "both" else (asked.theme,):
        take(theme, asked.keep_frames)


def take(theme: str, keep_frames: Path | None) -> None:
    """Take all pictures in one theme, but tour.png."""
    with tempfile.TemporaryDirectory(prefix="dtfm-pictures-") as folder, lab_in_a_browser(Path(folder), STORY) as page:
        recorder = Recorder(page)
        still = story(page, theme, recorder)
        (PICTURES / f"lab-{theme}.png").write_bytes(with_palette(still, 256))
        if theme == "light":
            SCREEN.write_bytes(with_palette(numbered(page), 256))
    moving = PICTURES / f"lab-{theme}.webp"
    recorder.write(moving, dark=theme == "dark")
    if keep_frames is not None:
        recorder.keep_frames(keep_frames / theme)
    print(f"{moving.name}: {recorder.seconds:.0f} s, {moving.stat().st_size / 1e6:.2f} MB")


@contextmanager
def lab_in_a_browser(folder: Path, opened: str) -> Iterator[object]:
    """A page of JupyterLab with nothing but a lab, which ``opened`` makes. Nothing in it asks or explains."""
    with jupyter_server(folder) as jupyter, sync_playwright() as playwright:
        browser = chromium(playwright)
        try:
            with fresh_page(browser, viewport=SIZE) as page:
                for seen in ("door-closed", "first-minute", "first-iteration"):
                    page.add_init_script(f"localStorage.setItem('dtfm-lab-{seen}', 'yes')")
                jupyter.open(page, [f"import dtfm_lab as lab\nthe_lab = {opened}\nthe_lab"])
                jupyter.run_all(page)
                yield page
        finally:
            browser.close()
            jupyter.end_sessions()


def played(page) -> bytes:
    """A moment of the first iteration: messages are on their way, and replicas average."""
    page.set_viewport_size(SMALL)
    lab = LabPage(page, "tour")
    lab.whole_window()
    lab.at_rest()
    slider = lab.root.get_by_role("slider", name="Moment of the iteration")
    slider.fill(MOMENT)
    page.mouse.move(2, 2)
    page.wait_for_timeout(600)
    return page.screenshot()


def story(page, theme: str, recorder: Recorder) -> bytes:
    """Everything that is shown, scene by scene; returns the still picture, taken of the compared run."""
    name = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}[theme]
    page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
    page.wait_for_timeout(1000)
    lab = LabPage(page, theme)
    lab.whole_window()
    page.evaluate(CURSOR)
    planned(lab)

    with recorder.scene("64 GPUs in 8 cities: each city holds one stage of the pipeline", seconds=5):
        play(lab)
    with recorder.scene("A larger batch changes the answer: each pipeline stays in its city", seconds=6):
        enlarge_batch(lab)
    open_laptops(lab)
    with recorder.scene("Eight laptops: make a link slower, and the plan follows", seconds=5):
        slow_down(lab)
    with recorder.scene("Does the prediction hold? Train for real, and kill a laptop", seconds=9):
        run_and_kill(lab)
    with recorder.scene("Predicted beside measured: the error of every device and link", seconds=6):
        compare(lab)
    lab.pane("Schedule")
    page.wait_for_timeout(900)
    page.mouse.move(2, 2)
    return page.screenshot()


def numbered(page) -> bytes:
    """The screen as it is, with a number on each part."""
    for number, selector in enumerate(PARTS, 1):
        page.evaluate(NUMBER, [selector, number])
    return page.screenshot()


def planned(lab: LabPage) -> None:
    """Wait until a plan of what is open is drawn, and no search looks for a better one."""
    until(lab.page, f"{PLANNED} and the_lab.predicted is not None")
    lab.at_rest()
    until(lab.page, "not the_lab.schedule_panel.chart.stale")
    lab.page.wait_for_timeout(600)


def play(lab: LabPage) -> None:
    """Play an iteration from its start, for some seconds or until it is over."""
    lab.root.get_by_role("button", name=re.compile("^Play")).first.click()
    lab.page.wait_for_timeout(4500)
    pause = lab.root.get_by_role("button", name=re.compile("^Pause")).first
    if pause.is_visible():
        pause.click()


def enlarge_batch(lab: LabPage) -> None:
    job = lab.menu("job")
    lab.fill(job.get_by_label("Batch", exact=True), str(LARGE_BATCH))
    until(lab.page, f"{PLANNED} and the_lab.plan.job.global_batch == {LARGE_BATCH}")
    lab.close_menu()
    planned(lab)
    play(lab)


def open_laptops(lab: LabPage) -> None:
    """Open the next network between two scenes."""
    ask(lab.page, "the_lab.open_network('lecture-hall')")
    until(lab.page, f"the_lab.topology.name == 'lecture-hall' and {PLANNED}")
    job = lab.menu("job")
    job.get_by_label("Job", exact=True).select_option("tiny")
    lab.close_menu()
    lab.picture("Rows")
    planned(lab)


def slow_down(lab: LabPage) -> None:
    lab.drag_link("", -130)
    planned(lab)


def run_and_kill(lab: LabPage) -> None:
    page, run = lab.page, lab.pane("Run")
    lab.fill(run.get_by_label("Iterations", exact=True), "2000")  # it must not end before the kill
    lab.press_next("Run it for real")
    until(page, "len(the_lab.run_panel.run.losses) >= 2")
    run.get_by_role("button", name=re.compile("^Disturb")).click()
    page.wait_for_timeout(200)
    page.get_by_role("menuitem", name=re.compile("^Kill")).dispatch_event("click")  # its menu is drawn again meanwhile
    until(page, "len(the_lab.run_panel.run.faults) == 1")
    until(page, f"len(the_lab.run_panel.run.losses) >= {ITERATIONS}")
    run.get_by_role("button", name="Stop", exact=True).click()
    until(page, "the_lab.comparison is not None")
    page.wait_for_timeout(900)


def compare(lab: LabPage) -> None:
    page = lab.page
    lab.press_next("Compare")
    compared = lab.root.locator(".dtfm-out-compare")
    compared.wait_for()
    page.wait_for_timeout(1500)
    compared.locator(".dtfm-residuals [role=row], .dtfm-residuals tbody tr").nth(1).click()
    page.wait_for_timeout(1500)
    lab.pane("Schedule")
    page.wait_for_timeout(2000)


def until(page, expression: str) -> None:
    """Wait until Python in the notebook's kernel finds this true. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if ask(page, f"print(bool({expression}))") == "True":
                return
        except RuntimeError:  # what it asks of is not there yet
            pass
        page.wait_for_timeout(150)
    raise TimeoutError(f"{expression} did not come to be")


if __name__ == "__main__":
    main()
