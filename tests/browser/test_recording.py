"""The result that is shown, recorded as a video: as large as that half of the lab, and as long as it ran."""

import base64
import re

from lab_page import LabPage

LENGTHS = """async (data) => {
    const video = Object.assign(document.createElement("video"), { src: `data:video/mp4;base64,${data}` });
    await new Promise((ready, failed) => { video.onloadeddata = ready; video.onerror = () => failed(video.error); });
    return [video.videoWidth, video.videoHeight];
}"""


def test_a_pane_is_recorded_until_it_is_stopped(page, open_notebook):
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab('lecture-hall', autosave=False)\nthe_lab"])
    seen = LabPage(page, "record")
    seen.settled("Iteration")
    seen.whole_window()
    pane = seen.boxes()["effect"]
    with page.expect_download() as download:
        seen.menu("more").get_by_role("button", name="Record").click()
        seen.next.filter(has_text=re.compile(r"Stop recording \([1-9] s\)")).click()
    assert seen.headline.inner_text() == "Recorded. lab.mp4 is among your downloads."
    assert seen.next.inner_text() == "Run it for real"
    assert download.value.suggested_filename == "lab.mp4"
    width, height = page.evaluate(LENGTHS, base64.b64encode(download.value.path().read_bytes()).decode())
    assert abs(width / height - pane[2] / pane[3]) < 0.02
    assert width > 0.9 * pane[2]
