"""Three people walk the paths of paths.md beside this file, without a line of code typed and without a dead end.

What the whole story walks, they pass by.
"""

import re

import pytest
from lab_page import LabPage
from playwright.sync_api import expect

pytest.importorskip("torch", reason="the student trains with torch")

SITES = 16
RESEARCH = "\n".join([
    "dtfm_topology: 1",
    "name: sixteen-sites",
    "default: {latency_ms: 40, bandwidth_gbps: 0.8}",
    "typical_prices: true",
    "regions:",
    *(
        f"  - {{name: site-{at}, count: 8, gpu: {('A100', 'V100')[at % 2]}, latency_ms: 0.1, bandwidth_gbps: 10}}"
        for at in range(SITES)
    ),
])  # fmt: skip
PLANNED = "the_lab.plan is not None and not the_lab.lab_state.plan_is_stale and the_lab.predicted is not None"


def opened(page, open_notebook, network, name, size, *, card=""):
    """The lab over the whole window; ``card`` is what is taken at its door."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    open_notebook(page, [f"import dtfm_lab as lab\nthe_lab = lab.Lab({network}autosave=False)\nthe_lab"])
    lab = LabPage(page, name)
    if not network:  # of a lab without a network the gallery opens by itself
        door = page.get_by_role("dialog", name="Open a network")
        door.get_by_role("button", name=re.compile(f"^{card or 'Close'}")).click()
    lab.whole_window()
    return lab


def seconds(text):
    """The last number of a text such as ``456 ms → 1.46 s`` in seconds."""
    found = re.findall(r"([\d.,]+)\s(ms|min|s)", text)
    assert found, text
    number, unit = found[-1]
    return float(number.replace(",", "")) * {"ms": 1e-3, "s": 1, "min": 60}[unit]


def test_a_student_finds_why_eight_laptops_wait(page, open_notebook, ask_kernel, eventually):
    lab = opened(page, open_notebook, "", "student", (1440, 900), card="8 laptops")
    eventually(page, f"{PLANNED} and the_lab.topology.name == 'lecture-hall'", True)
    first_s = seconds(lab.settled("Iteration"))
    lab.look("opened")

    lab.drag_link("pairs without a line", -130, look="while-dragging")
    eventually(page, PLANNED, True)
    assert seconds(lab.settled("Iteration")) > first_s
    expect(lab.headline).to_contain_text("→")
    lab.look("slowed")
    lab.inspector.locator("[title^='Stage 1']").click()
    expect(lab.inspector).to_have_attribute("data-kind", "stage")
    lab.look("stage-read")
    lab.root.get_by_role("button", name="Undo", exact=True).first.click()
    eventually(page, f"{PLANNED} and the_lab.predicted.iteration_s <= {1.005 * first_s}", True)
    lab.look("undone")

    run = lab.pane("Run")
    run.get_by_role("button", name="Mystery").click()
    eventually(page, "the_lab.lab_state.is_mystery and the_lab.comparison is None", True)
    eventually(page, "the_lab.comparison is not None", True)
    compared = lab.pane("Compare")
    page.wait_for_timeout(1500)
    lab.look("mystery")
    secret = ask_kernel(page, "print(the_lab.run_panel.guessing._secret.of)")
    compared.get_by_role("tab", name={"device": "Devices", "link": "Links"}[secret]).click()
    compared.get_by_role("button", name="longer", exact=True).click()
    page.wait_for_timeout(500)
    for row in range(4):  # on a busy machine others take longer, too: the student tries the next
        compared.locator(".dtfm-residuals tbody button").nth(row).click()
        compared.get_by_role("button", name="Guess this one").click()
        eventually(page, "the_lab.run_panel.guessing.tries", row + 1)
        if ask_kernel(page, "print(the_lab.lab_state.is_mystery)") == "False":
            break
    eventually(page, "the_lab.lab_state.is_mystery", False)
    lab.look("mystery-found")
    expect(lab.headline).to_contain_text("it is")


def test_a_lecture_shows_that_placement_matters(page, open_notebook, ask_kernel, eventually):
    lab = opened(page, open_notebook, "'worldwide', ", "lecture", (1280, 720))
    eventually(page, PLANNED, True)
    lab.at_rest()
    assert lab.root.locator(".dtfm-map").is_visible()
    lab.look("opened")
    was, before_s = ask_kernel(page, "print(the_lab.topology.fingerprint)"), seconds(lab.settled("Iteration"))
    label = lab.root.locator(".dtfm-map .dtfm-link[role=slider]").first
    box = label.bounding_box()
    place = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    lab.drag(place, (place[0] - 130, place[1]), look="while-dragging")
    eventually(page, PLANNED, True)
    assert ask_kernel(page, "print(the_lab.topology.fingerprint)") != was
    lab.look("slow-link")

    search = lab.key_pane("Search")
    search.get_by_role("button", name="Slow", exact=True).click()
    search.get_by_role("button", name=re.compile("Play")).first.click()
    eventually(page, "the_lab.plan_panel.teaching.view.frame > 8", True)
    lab.look("teaching")
    search.get_by_role("button", name=re.compile("Pause")).first.click()
    search.get_by_label("Generation", exact=True).locator("visible=true").fill("2")
    eventually(page, "the_lab.plan_panel.teaching.view.frame", 2)
    lab.look("scrubbed-back")

    page.mouse.click(*middle_of_foot(lab))
    lab.key_pane("Schedule")
    page.keyboard.press(" ")
    eventually(page, "the_lab.run_panel.playback.view.playing", True)
    page.wait_for_timeout(600)
    lab.look("playing")
    page.keyboard.press(" ")
    eventually(page, "the_lab.run_panel.playback.view.playing", False)
    page.keyboard.press("z")
    eventually(page, "the_lab.topology.fingerprint", was)
    eventually(page, f"{PLANNED} and the_lab.predicted.iteration_s <= {1.01 * before_s}", True)
    lab.look("undone")


def middle_of_foot(lab):
    x, y, width, height = lab.boxes()["foot"]
    return x + width - 4, y + height / 2


def test_a_researcher_compares_plans_of_128_devices(page, open_notebook, ask_kernel, eventually, jupyter):
    (jupyter.folder / "sixteen.yaml").write_text(RESEARCH)
    lab = opened(page, open_notebook, "", "research", (1440, 900))
    network = lab.menu("network")
    network.get_by_label("File", exact=True).fill("sixteen.yaml")
    network.get_by_label("File", exact=True).press("Enter")
    network.locator("button", has_text=re.compile(r"^\s*Open file\s*$")).click()
    eventually(page, "len(the_lab.topology.devices)", 128)
    lab.close_menu()
    lab.look("opened")
    if ask_kernel(page, "print(the_lab.job.name)") != "gpt3-xl":
        job = lab.menu("job")
        job.get_by_label("Job", exact=True).select_option("gpt3-xl")
        lab.close_menu()
    eventually(page, PLANNED, True)
    lab.settled("Iteration")
    lab.look("planned")

    lab.picture("Matrix")
    page.wait_for_function("() => document.querySelector('.dtfm-matrix')?.whereIs?.(0, 1)")
    box = lab.root.locator(".dtfm-matrix .dtfm-box").first.bounding_box()
    x, y = page.evaluate("() => document.querySelector('.dtfm-matrix').whereIs(0, 20)")
    lab.click((box["x"] + x, box["y"] + y))
    eventually(page, "len(the_lab.lab_state.selected_link)", 2)
    expect(lab.inspector).to_have_attribute("data-kind", "link")
    lab.look("matrix")

    search = lab.pane("Search")
    search.get_by_role("button", name="Plan", exact=True).wait_for()
    more = lab.more(search)
    more.get_by_label("Plan for", exact=True).select_option(label="communication cost")
    lab.look("objective")
    lab.close_menu()
    ask_kernel(page, "the_lab.plan_panel.real.seconds.value = 1")
    search.get_by_role("button", name="Plan", exact=True).click()
    planned = f"{PLANNED} and the_lab.plan.objective == 'communication'"
    eventually(page, f"{planned} and the_lab.plan_panel.real.search is None", True)
    lab.look("communication")

    search = lab.pane("Search")
    search.get_by_role("button", name="Frontier", exact=True).click()
    ask_kernel(page, "the_lab.plan_panel.frontier.searches.value = 3; the_lab.plan_panel.frontier.seconds.value = 1")
    search.get_by_role("button", name="Find frontier").click()
    eventually(page, "the_lab.plan_panel.frontier.search is None and the_lab.plan_panel.frontier.frontier is not None",
               True)  # fmt: skip
    page.wait_for_timeout(500)
    lab.look("frontier")
    search.get_by_role("button", name=re.compile("^Use the plan of")).last.press("Enter")
    eventually(page, PLANNED, True)
    lab.look("cheaper")

    schedule = lab.pane("Schedule")
    more = lab.more(schedule)
    lab.look("exports")
    with page.expect_download() as download:
        more.get_by_role("button", name=re.compile("Trace")).click()
    assert download.value.suggested_filename.endswith(".json")


def test_the_first_minute_leads_from_a_link_to_a_killed_device(page, open_notebook, ask_kernel, eventually):
    lab = opened(page, open_notebook, "'lecture-hall', 'tiny', ", "minute", (1440, 900))
    steps = lab.root.get_by_role("group", name="First minute")
    words = lab.root.locator(".dtfm-player .dtfm-played-words")
    expect(words).to_contain_text(re.compile("part of the model|are messages|replicas agree"))  # it plays on meanwhile
    words.get_by_role("button", name="Skip").click()
    expect(words).to_be_hidden()
    handle = lab.headline.locator(".dtfm-handle")
    eventually(page, f"{PLANNED} and not the_lab.lab_state.searches_on and bool(the_lab.lab_state.binding)", True)
    handle.click()
    eventually(page, "bool(the_lab.lab_state.selected or the_lab.lab_state.selected_link)", True)
    expect(lab.inspector).to_have_attribute("data-kind", re.compile("link|device"))
    lab.look("handle")
    lab.drag_link("pairs without a line", 60)
    lab.at_rest()  # else the run is of the plan before the edit, and its error says nothing about this one
    steps.get_by_role("button", name=re.compile("^Train it here")).click()
    steps.get_by_role("button", name="2 to 10 %").click()
    expect(steps).to_contain_text("You guess 2 to 10 %")
    for before in ("starting", "profiling"):
        eventually(page, f"the_lab.run_panel.run.status != {before!r}", True)
    for done in range(0, 40, 5):  # on a busy machine all of them take longer than a test waits for one thing
        going_on = f"the_lab.comparison is not None or len(the_lab.run_panel.run.losses) > {done}"
        eventually(page, f"{going_on} or not the_lab.run_panel.run.running", True)
    eventually(page, "the_lab.comparison is not None", True)
    expect(steps).to_contain_text("The prediction was off by")
    lab.look("measured")
    steps.get_by_role("button", name="Kill one").click()
    eventually(page, "len(the_lab.run_panel.run.faults)", 1)
    share = steps.get_by_role("button", name="Share this")
    share.wait_for()
    lab.look("killed")
    share.click()
    lab.root.locator(".dtfm-next[data-step=done], .dtfm-menu.dtfm-open").first.wait_for()
    page.keyboard.press("Escape")
    steps.get_by_role("button", name="Close").click()
    expect(steps).to_be_hidden()
    ask_kernel(page, "the_lab.run_panel.stop.click()")
    assert page.evaluate("localStorage.getItem('dtfm-lab-first-minute')") == "yes"
    assert page.evaluate("localStorage.getItem('dtfm-lab-first-iteration')") == "yes"
