"""A kernel that is killed leaves the last picture, and one button brings the lab back in a new kernel."""

import os
import signal

from lab_page import LabPage


def test_the_last_picture_stays_and_a_button_brings_the_lab_back(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab('lecture-hall')\nthe_lab"])
    seen = LabPage(page, "lost-kernel")
    seen.settled("Iteration")
    seen.drag_link("", -60)
    seconds = seen.settled("Iteration").split(" → ")[-1]
    eventually(page, "the_lab.autosave._path.exists() and not the_lab.autosave._writing", True)
    os.kill(int(ask_kernel(page, "import os; print(os.getpid())")), signal.SIGKILL)
    page.locator(".dtfm-headline", has_text="Python has ended").wait_for()
    page.get_by_role("button", name="Ok", exact=True).click()  # JupyterLab tells of it, too
    assert seen.boxes() == seen._boxes, "nothing moves"
    page.get_by_role("button", name="Restart and restore").click()
    page.locator(".dtfm-lab:not(.dtfm-gone) .dtfm-gantt:not([data-predicted='0'])").first.wait_for()
    page.wait_for_function(
        "(wanted) => document.querySelector('.dtfm-lab .dtfm-numbers').textContent.includes(wanted)", arg=seconds
    )
    assert page.locator(".dtfm-lab").count() == 1
