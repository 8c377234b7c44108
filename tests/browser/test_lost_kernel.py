"""A lab's result is recorded as a video; its kernel is killed, the last picture stays, and a button brings it back.

The video is as large as the half of the lab that is shown. The video of a killed device shows the whole lab.
"""

import base64
import os
import re
import signal

from lab_page import LabPage
from playwright.sync_api import expect

LENGTHS = """async (data) => {
    const video = Object.assign(document.createElement("video"), { src: `data:video/mp4;base64,${data}` });
    await new Promise((ready, failed) => { video.onloadeddata = ready; video.onerror = () => failed(video.error); });
    return [video.videoWidth, video.videoHeight];
}"""


def test_a_pane_is_recorded_and_after_a_lost_kernel_the_last_picture_stays_and_a_button_brings_the_lab_back(
    page, open_notebook, ask_kernel, eventually
):
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab('lecture-hall')\nthe_lab"])
    seen = LabPage(page, "lost-kernel")
    seen.settled("Iteration")
    recorded(seen)
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


def test_a_killed_device_is_recorded_by_one_button(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab('lecture-hall', 'tiny', autosave=False)\nthe_lab"])
    seen = LabPage(page, "recorded-kill")
    seen.settled("Iteration")
    seen.whole_window()
    with page.expect_download() as download:
        seen.menu("more").get_by_role("button", name="Record a kill").click()
        expect(seen.headline).to_have_text("Recorded. kill.mp4 is among your downloads.", use_inner_text=True)
    eventually(page, "len(the_lab.run_panel.run.faults)", 1)
    assert download.value.suggested_filename == "kill.mp4"
    width, height = page.evaluate(LENGTHS, base64.b64encode(download.value.path().read_bytes()).decode())
    shown = page.viewport_size
    assert abs(width / height - shown["width"] / shown["height"]) < 0.02
    assert width > 0.9 * shown["width"]
    eventually(page, "len(the_lab.run_panel.run.losses) > 3", True)
    ask_kernel(page, "the_lab.run_panel.stop.click()")
    eventually(page, "the_lab.run_panel.run.running", False)


def recorded(seen):
    """Record the pane for a second, until it is stopped, in the whole window: there it is in sight from end to end."""
    seen.whole_window()
    pane = seen.boxes()["effect"]
    with seen.page.expect_download() as download:
        seen.menu("more").get_by_role("button", name=re.compile("Record$")).click()
        seen.next.filter(has_text=re.compile(r"Stop recording \([1-9] s\)")).click()
    expect(seen.headline).to_have_text("Recorded. lab.mp4 is among your downloads.", use_inner_text=True)
    expect(seen.next).to_have_text("Run it for real")
    assert download.value.suggested_filename == "lab.mp4"
    width, height = seen.page.evaluate(LENGTHS, base64.b64encode(download.value.path().read_bytes()).decode())
    assert abs(width / height - pane[2] / pane[3]) < 0.02
    assert width > 0.9 * pane[2]
    seen.root.get_by_role("button", name="Whole window").click()
    seen.page.locator(".dtfm-lab:not(.dtfm-window)").wait_for()
    seen.settle()
