"""``make pictures``: stills and a moving picture of the lab, made by driving it in a browser as a person would.

In JupyterLab in a headless Chromium: eight devices are drawn, a plan is found, its groups are looked at, the plan is
trained for real, a device is killed meanwhile, and the measurement is laid over the prediction. Written are
tools/pictures/lab-light.png, lab-dark.png, and lab-light.webp and lab-dark.webp, which move for about a minute: what is
only waited for is left out. tour.png is a moment of the first iteration in the tour's lab, for its notebook.

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
SIZE = {"width": 1280, "height": 760}
SMALL = {"width": 980, "height": 660}
"""of tour.png, which is shown in a notebook's cell"""
PATIENCE_S = 180
PLACES = {
    "device-1": (0.14, 0.16),
    "device-2": (0.31, 0.16),
    "device-3": (0.5, 0.16),
    "device-4": (0.69, 0.16),
    "device-5": (0.86, 0.16),
    "device-6": (0.3, 0.66),
    "device-7": (0.5, 0.66),
    "device-8": (0.7, 0.66),
}
"""Shares of the canvas' width and height."""
REGIONS = (("device-1", "device-2", "device-3"), ("device-4", "device-5"), ("device-6", "device-7", "device-8"))
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
        with tempfile.TemporaryDirectory(prefix="dtfm-pictures-") as folder, lab_in_a_browser(Path(folder)) as page:
            recorder = Recorder(page)
            still = story(page, theme, recorder)
            (PICTURES / f"lab-{theme}.png").write_bytes(with_palette(still, 256))
        moving = PICTURES / f"lab-{theme}.webp"
        recorder.write(moving, dark=theme == "dark")
        if asked.keep_frames is not None:
            recorder.keep_frames(asked.keep_frames / theme)
        print(f"{moving.name}: {recorder.seconds:.0f} s, {moving.stat().st_size / 1e6:.2f} MB")


@contextmanager
def lab_in_a_browser(folder: Path, opened: str = "lab.Lab(autosave=False)") -> Iterator[object]:
    """A page of JupyterLab, with nothing but a lab in it, an empty one by default."""
    with jupyter_server(folder) as jupyter, sync_playwright() as playwright:
        browser = chromium(playwright)
        try:
            with fresh_page(browser, viewport=SIZE) as page:
                page.add_init_script("localStorage.setItem('dtfm-lab-door-closed', 'yes')")  # it opens when asked to
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
    blank(lab)

    with recorder.scene("Draw a network: eight devices in three regions, one slow link", seconds=14):
        draw(lab)
    with recorder.scene("It is planned as you draw: the shape, the stages, the devices", seconds=8):
        plan(lab)
    with recorder.scene("The paper's five steps: from groups to the path through them", seconds=9):
        groups(lab)
    with recorder.scene("One iteration, predicted; what if the network were faster?", seconds=8):
        what_if(lab)
    with recorder.scene("Train for real on this machine, over links as slow as drawn, and kill a device", seconds=12):
        run_and_kill(lab)
    with recorder.scene("Predicted beside measured: the error of every stage and link", seconds=9):
        compare(lab)
    lab.pane("Schedule")
    page.wait_for_timeout(900)
    page.mouse.move(2, 2)
    return page.screenshot()


def blank(lab: LabPage) -> None:
    lab.press_next("Open a network")
    door = lab.root.get_by_role("dialog")
    door.get_by_role("button", name=re.compile("^all .* networks")).wait_for()
    door.get_by_role("button", name=re.compile("^Blank")).click()
    door.wait_for(state="hidden")
    lab.settle()


def draw(lab: LabPage) -> None:
    page, box = lab.page, lab.stage.bounding_box()
    lab.picture("Rows")
    lab.stage.click(position={"x": box["width"] / 2, "y": box["height"] * 0.9})
    page.keyboard.press("d")
    for across, down in PLACES.values():
        x, y = lab.at(across * box["width"], down * box["height"])
        page.mouse.move(x, y, steps=4)
        lab.click((x, y))
        page.wait_for_timeout(260)  # a second click sooner is a double click
    until(page, "len(the_lab.topology.devices) == 8")
    page.keyboard.press("v")
    for region in REGIONS:
        lab.click(lab.at(0.5 * box["width"], 0.9 * box["height"]))
        for at, name in enumerate(region):
            lab.click(lab.where(name), modifiers=["Shift"] if at else [])
        page.keyboard.press("g")
        page.wait_for_timeout(400)
    until(page, "len(the_lab.topology.regions) == 3")
    page.keyboard.press("l")
    lab.drag(lab.where("device-1"), lab.where("device-6"))
    until(page, "len(the_lab.network_panel.drawing.document['links']) == 1")
    page.keyboard.press("v")
    form = page.locator(".dtfm-editor .dtfm-side")
    if not form.is_visible():
        page.keyboard.press("Enter")
    lab.fill(form.get_by_label("Latency (ms)").nth(0), "80")
    lab.fill(form.get_by_label("Bandwidth (Gbit/s)").nth(0), "0.02")
    page.wait_for_timeout(400)
    page.keyboard.press("Escape")
    page.wait_for_timeout(300)


def plan(lab: LabPage) -> None:
    page, job = lab.page, lab.menu("job")
    job.get_by_label("Job", exact=True).select_option("tiny")
    page.wait_for_timeout(400)
    job.get_by_label("Shape", exact=True).select_option("4 stages x 2 replicas")
    page.wait_for_timeout(500)
    lab.close_menu()
    until(page, f"{PLANNED} and the_lab.plan.job.n_stages == 4 and the_lab.predicted is not None")
    lab.pane("Search")
    page.wait_for_timeout(2500)


def groups(lab: LabPage) -> None:
    pane = lab.pane("Groups")
    pane.get_by_role("button", name="Ring", exact=True).click()
    for letter in "abcde":
        pane.get_by_role("button", name=re.compile(rf"\({letter}\)")).click()
        lab.page.wait_for_timeout(1100)


def what_if(lab: LabPage) -> None:
    page = lab.page
    lab.pane("Schedule")
    page.wait_for_timeout(1200)
    pane = lab.pane("What if")
    page.wait_for_timeout(800)
    slider = pane.get_by_role("slider").first
    slider.focus()
    for key in ["ArrowRight"] * 8 + ["ArrowLeft"] * 8:
        slider.press(key)
        page.wait_for_timeout(180)
    page.wait_for_timeout(600)


def run_and_kill(lab: LabPage) -> None:
    page, run = lab.page, lab.pane("Run")
    lab.fill(run.get_by_label("Iterations", exact=True), "40")
    lab.press_next("Run it for real")
    until(page, "len(the_lab.run_panel.run.losses) >= 2")
    run.get_by_role("button", name=re.compile("^Disturb")).click()
    page.wait_for_timeout(200)
    page.get_by_role("menuitem", name=re.compile("^Kill")).dispatch_event("click")  # its menu is drawn again meanwhile
    until(page, "len(the_lab.run_panel.run.faults) == 1")
    page.wait_for_timeout(300)
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
