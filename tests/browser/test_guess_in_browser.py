"""A guess in the browser: by keyboard, and on a phone's width."""

from playwright.sync_api import expect

START = """
import os, tempfile
os.environ["DTFM_LAB_PROGRESS"], os.environ["DTFM_LAB_READER"] = tempfile.mkdtemp(), "ada"
import dtfm_lab as lab
"""
ASK = 'lab.guess("random-cost", "What does a random placement cost?", lambda: 49.5, "s", 1, 1000)'
KEPT = "print([[each.guess, each.answer] for each in lab.missions.progress().guesses])"


def test_a_guess_by_keyboard_counts_once(page, open_notebook, ask_kernel):
    open_notebook(page, [START, ASK])
    view = page.locator(".dtfm-guess")
    expect(view).to_have_attribute("data-state", "asking")
    assert "49.5" not in view.inner_html()
    field = view.get_by_role("spinbutton", name="Your guess")
    view.get_by_label("Because").fill("an ocean is in the way")
    field.focus()
    page.keyboard.type("12")
    page.keyboard.press("Enter")
    expect(view.get_by_role("status").first).to_have_text("You said 12 s, it is 49.5 s: 4.1 times too low.")
    expect(view.locator(".dtfm-guess-words")).to_be_focused()
    view.evaluate("(root) => { root.parentElement.style.width = '330px'; }")  # a phone's
    assert view.evaluate("(root) => root.clientWidth <= 330 && root.scrollWidth <= root.clientWidth")
    assert ask_kernel(page, KEPT).strip() == "[[12.0, 49.5]]"
    view.get_by_role("button", name="Guess again").press("Enter")
    expect(field).to_be_focused()
    slider = view.get_by_role("slider")
    slider.press("End")
    expect(slider).to_have_attribute("aria-valuetext", "1,000 s")
    view.get_by_role("button", name="Guess").press("Enter")
    expect(view.locator(".dtfm-guess-words")).to_contain_text("Your first guess counts: 12 s.")
    assert ask_kernel(page, KEPT).strip() == "[[12.0, 49.5]]"


CHOOSE = 'lab.guess("binds", "Which link binds?", "the sea", choices=("the room", "the sea"))'


def test_a_choice_needs_a_reason(page, open_notebook, ask_kernel):
    open_notebook(page, [START, CHOOSE])
    view = page.locator(".dtfm-guess")
    view.get_by_role("radio", name="the room").check()
    view.get_by_role("button", name="Guess").click()
    expect(view).to_have_attribute("data-state", "asking")
    view.get_by_label("Because").fill("it has the least bandwidth")
    view.get_by_role("button", name="Guess").click()
    expect(view.get_by_role("status").first).to_have_text("You chose: the room. It is: the sea.")
    assert ask_kernel(page, KEPT).strip() == "[[1.0, 2.0]]"
