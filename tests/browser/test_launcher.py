"""The card in JupyterLab's launcher: the lab in a tab of its own, also after the page or its kernel has ended."""

import json
import tomllib
from pathlib import Path

import pytest
from conftest import shared

REPOSITORY = Path(__file__).parents[2]
SAVED = """async () => {
    const kept = await (await fetch("/lab/api/workspaces")).json();
    return JSON.stringify(kept).includes('"dtfm-lab:dtfm-lab.ipynb"');
}"""
"""Whether JupyterLab has saved its layout with the tab in it."""
ALL_SAVED = "() => [...window.jupyterapp.shell.widgets('main')].every((tab) => !tab.context?.model.dirty)"
FILLS = """() => {
    const [tab, lab] = [".dtfm-lab-tab", ".dtfm-lab-tab .dtfm-lab"].map((selector) => {
        const { x, y, width, height } = document.querySelector(selector)?.getBoundingClientRect() ?? {};
        return [x, y, width, height];
    });
    return tab.every((number, i) => Math.abs(number - lab[i]) <= 1) && tab[3] > 0.85 * innerHeight;
}"""
"""Whether the lab is as large as its tab, and the tab nearly as high as the window."""
TABS = "() => [...window.jupyterapp.shell.widgets('main')].map((tab) => tab.title.label)"
BOTH_OPEN = f"() => ({TABS})().sort().join() === 'dtfm lab,dtfm-lab.ipynb'"


def open_lab(page, jupyter, query="reset"):
    page.goto(f"{jupyter.url}/lab?token={jupyter.token}&{query}")


@pytest.fixture(autouse=True)
def own_notebooks(jupyter):
    """No notebook is there before, and no tab of these afterwards."""
    for path in jupyter.folder.glob("dtfm-lab*.ipynb"):
        path.unlink()
    yield
    shared.leave_page()


def test_the_card_opens_the_lab_in_a_tab_that_is_there_again_after_page_and_kernel_have_ended(page, jupyter):
    open_lab(page, jupyter)
    page.locator(".jp-LauncherCard", has_text="dtfm lab").click()
    page.locator(".dtfm-lab-tab .dtfm-lab").wait_for()
    page.wait_for_function(FILLS)
    page.wait_for_function(BOTH_OPEN)
    assert page.locator(".dtfm-lab-tab > p").is_hidden()

    page.wait_for_function(ALL_SAVED)
    page.wait_for_function(SAVED)
    open_lab(page, jupyter, "")
    page.locator(".dtfm-lab-tab .dtfm-lab").wait_for()
    page.wait_for_function(BOTH_OPEN)

    page.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")
    page.wait_for_function(SAVED)
    open_lab(page, jupyter, "")
    page.get_by_role("button", name="Open it again").click()
    page.locator(".dtfm-lab-tab .dtfm-lab").wait_for()
    page.locator(".dtfm-lab-tab > p").wait_for(state="hidden")

    page.evaluate("() => { window.jupyterapp.commands.execute('dtfm-lab:open'); }")
    page.wait_for_function(f"({TABS})().length === 4")
    written = sorted(path.name for path in jupyter.folder.glob("dtfm-lab*.ipynb"))
    assert written == ["dtfm-lab-1.ipynb", "dtfm-lab.ipynb"], "a new notebook each time"


def test_the_extension_is_the_packages_and_of_its_version():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    extension = json.loads((REPOSITORY / "tools" / "labextension" / "package.json").read_text())
    assert shared == {"tools/labextension": f"share/jupyter/labextensions/{extension['name']}"}
    assert extension["version"] == project["project"]["version"]
    loaded = REPOSITORY / "tools" / "labextension" / extension["jupyterlab"]["_build"]["load"]
    assert f'_JUPYTERLAB["{extension["name"]}"]' in loaded.read_text()
