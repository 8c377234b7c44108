"""The row that plays an iteration, alone in a cell: it tells the moment, up to what is known, and stops."""

import pytest
from playwright.sync_api import expect

PLAYER = """
from dtfm_lab.widgets.views.player import PlayerView
player = PlayerView()
player
"""
LISTEN = "document.addEventListener('dtfm-time', ({ detail }) => { (window.told ??= []).push(detail.time); })"


def test_an_iteration_is_played_as_far_as_it_is_known(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [PLAYER])
    view = page.locator(".dtfm-player").first
    button, slider = view.get_by_role("button"), view.get_by_role("slider")
    expect(button).to_be_disabled()
    expect(view).to_contain_text("nothing to play yet")
    page.evaluate(LISTEN)

    ask_kernel(page, "player.set_trait('length_s', 0.6); player.known_s = 0.05; player.source = 'predicted'")
    expect(view).to_contain_text("predicted · 10 x slower than real time")
    button.click()
    expect(button).to_have_text("Pause")
    eventually(page, "player.playing", True)
    page.wait_for_function("window.told?.at(-1)?.t_s === 0.05")
    ask_kernel(page, "player.known_s = 0.6")
    page.wait_for_function("window.told.at(-1).t_s > 0.1")
    told = page.evaluate("window.told.map((time) => time.t_s)")
    assert told == sorted(told)

    slider.focus()
    page.keyboard.press("End")
    eventually(page, "player.playing", False)
    assert page.evaluate("window.told.at(-1).t_s") == pytest.approx(0.6)
    button.click()
    page.wait_for_function("window.told.at(-1).t_s < 0.3 && window.told.at(-1).playing")
    button.click()
    expect(button).to_have_text("Play")
    ask_kernel(page, "player.length_s = 0")
    page.wait_for_function("window.told.at(-1) === null")
    expect(button).to_be_disabled()
