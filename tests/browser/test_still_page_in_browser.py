"""The still page of a plan, opened as a file in a browser without a network: it plays, points and explains."""

import time
from contextlib import closing
from dataclasses import replace

import pytest
from playwright.sync_api import expect
from serving import PATIENCE_S, watched_page

import dtfm_lab as lab
from dtfm_lab.files.workspaces import WorkspaceState, link_of
from dtfm_lab.lab.plans import opening_job
from dtfm_lab.widgets.shell.still_page.linked import opening_page, picture_of
from tools.website.answers import answering_page, answers_of

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def opened(browser):
    """``opened(path)`` is a page of this test's own that has opened the file, with no other machine in reach."""
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 800})
    with closing(context), watched_page(context) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"a name became markup: {dialog.message}"))

        def go_to(path, link=""):
            page.goto(f"{path.as_uri()}{link}")
            page.wait_for_selector(".dtfm-still[data-shown]")
            return page

        yield go_to


def test_it_plays_points_and_explains_without_a_kernel(opened, tmp_path):
    network = lab.load_topology("lecture-hall")
    devices = tuple(replace(device, region=f"{device.region}{HOSTILE}") for device in network.devices)
    plan = lab.plan(replace(network, devices=devices, name=HOSTILE), lab.load_job("tiny"), steps=3)
    page = opened(lab.save(plan, tmp_path / "plan.html"))
    until(page, "document.querySelector('.dtfm-map').whatIs?.().badges.length === 8")
    expect(page.locator(".dtfm-gantt")).not_to_have_attribute("data-predicted", "0")
    assert page.locator(".dtfm-go, .dtfm-live, [data-menu], [aria-label='Undo'], [role=slider]").count() == 0

    page.evaluate("document.addEventListener('dtfm-time', ({ detail }) => { (window.told ??= []).push(detail.time); })")
    page.get_by_role("button", name="Play").click()
    until(page, "window.told?.some((time) => time.t_s > 0)")
    page.get_by_role("button", name="Pause").click()

    page.mouse.move(*where_is(page, "ada"))
    expect(page.locator(".dtfm-map .dtfm-tooltip")).to_contain_text("ada")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    assert [found["id"] for found in axe.run(page).response["violations"]] == []
    page.get_by_role("button", name="Words").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def test_a_link_is_dragged_without_a_kernel(opened, tmp_path):
    topology = lab.load_topology("lecture-hall")
    answers = list(answers_of(topology, opening_job(topology), batches=(8, 16), seconds=0.05))
    path = tmp_path / "lab.html"
    path.write_text(answering_page(answers, {}, "found beforehand"), encoding="utf-8")
    page = opened(path)
    label = page.get_by_role("slider", name="Link front – back")
    expect(label).to_contain_text("0.1 Gbit/s")
    headline = page.locator(".dtfm-headline .dtfm-sentence")
    before = headline.inner_text()
    box = label.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 60, y, steps=5)
    expect(headline).to_contain_text("0.1 → 0.03 Gbit/s")
    page.mouse.up()
    expect(label).to_contain_text("0.03 Gbit/s")  # let go, it takes the number of its answer
    page.get_by_role("button", name="8", exact=True).click()
    expect(headline).to_contain_text("Batch 16 → 8")
    expect(label).to_contain_text("0.1 Gbit/s")
    page.get_by_role("button", name="As it was").click()
    expect(headline).to_have_text(before)


def test_a_link_is_shown_by_a_page_without_a_server_and_a_damaged_one_is_a_line(opened, tmp_path):
    network = lab.load_topology("lecture-hall")
    devices = tuple(replace(device, name=f"{device.name}{HOSTILE}") for device in network.devices)
    plan = lab.plan(replace(network, devices=devices, name=HOSTILE), lab.load_job("tiny"), steps=3)
    link = link_of(WorkspaceState(topology=plan.topology, job=plan.job, plan=plan), picture_of(plan, None))
    path = tmp_path / "open.html"
    path.write_text(opening_page(), encoding="utf-8")
    page = opened(path, link)
    until(page, "document.querySelector('.dtfm-map').whatIs?.().badges.length === 8")
    expect(page.locator(".dtfm-gantt")).not_to_have_attribute("data-predicted", "0")
    expect(page.locator(".dtfm-pick").first).to_contain_text(HOSTILE)
    page.evaluate("document.addEventListener('dtfm-time', ({ detail }) => { (window.told ??= []).push(detail.time); })")
    page.get_by_role("button", name="Play").click()
    until(page, "window.told?.some((time) => time.t_s > 0)")

    page.evaluate("(link) => { location.hash = link; }", link[:-20])
    expect(page.get_by_role("alert")).to_have_text("The link is damaged or cut off: copy it again, whole.")
    page.get_by_role("textbox", name="Link").fill(f"http://127.0.0.1:8866/{link}")
    page.get_by_role("button", name="Open").click()
    expect(page.locator(".dtfm-pick").first).to_contain_text(HOSTILE)


def until(page, expression):
    """Wait until it is true; playwright's own way evaluates text in the page, which its policy forbids."""
    deadline = time.monotonic() + PATIENCE_S
    while not page.evaluate(f"Boolean({expression})"):
        assert time.monotonic() < deadline, f"waited in vain for {expression}"
        page.wait_for_timeout(50)


def where_is(page, name):
    box = page.locator(".dtfm-map .dtfm-box").bounding_box()
    x, y = page.evaluate("(name) => document.querySelector('.dtfm-map').whereIs(name)", name)
    return box["x"] + x, box["y"] + y
