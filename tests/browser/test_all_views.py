"""What every view does, found by its folder: it follows the theme, and goes without a trace."""

from playwright.sync_api import expect

VIEWS = """
import importlib
import inspect
import pkgutil
from dtfm_lab.widgets import views as folder
from dtfm_lab.widgets.views.gantt.bars import Bars, Chart
from dtfm_lab.widgets.views.view import View

def classes():
    for found in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        module = importlib.import_module(found.name)
        own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == found.name]
        yield from (one for one in own if issubclass(one, View) and "_esm" in vars(one))

def made(view):
    # with as many functions that do nothing as it must be given
    given = inspect.signature(view).parameters.values()
    needed = [one for one in given if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    return view(*(lambda *_: None for _ in needed))

views = {view.__name__: made(view) for view in classes()}
views["TopologyEditor"].document = {
    "name": "flat",
    "devices": [{"name": "ada", "region": "", "gpu": "T4", "x": 0.0, "y": 0.0}],
    "regions": [], "between": [], "links": [], "default": {"latency_ms": 50.0, "bandwidth_gbps": 1.0},
}
views["ConvergenceView"].extend([[1, .1, 9, 2, 9]])
bars = Bars.of([0, 1], [1, 2], [0, 1], [0, 0], [0, 1])
views["GanttView"].set_predicted(Chart(bars), rows=["ada", "bob"], kinds=[
    {"name": "forward", "color": "#0072B2", "shades": ["#0072B2"], "edge": "", "message": False},
])
print(len(views))
"""
SHOWN = "for view in views.values():\n    display(view)"
COLOURS = "() => [...document.querySelectorAll('.dtfm')].map((view) => getComputedStyle(view).color)"
ALL_DIFFER = f"""(before) => {{
    const now = ({COLOURS})();
    return now.length === before.length && now.every((colour, at) => colour !== before[at]);
}}"""


def test_every_view_follows_the_theme_and_goes_without_a_trace(page, open_notebook, set_theme, ask_kernel):
    open_notebook(page, [VIEWS, SHOWN])
    page.wait_for_selector(".dtfm-gantt[data-predicted='2']")
    n_views = int(ask_kernel(page, "print(len(views))"))
    assert n_views > 10
    page.wait_for_function("(n) => document.querySelectorAll('.dtfm').length >= n", arg=n_views)
    set_theme(page, "light")
    light = page.evaluate(COLOURS)
    set_theme(page, "dark")
    page.wait_for_function(ALL_DIFFER, arg=light)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    expect(page.locator(".dtfm")).to_have_count(0)
    set_theme(page, "light")  # the page fixture then finds no script error


def test_a_view_that_took_long_to_load_hears_the_kernel(page, open_notebook, ask_kernel):
    legend = ["from dtfm_lab.widgets.views.frame import Legend\nlegend = Legend()\nlegend"]
    open_notebook(page, legend)
    page.wait_for_selector(".dtfm-lab-foot")
    page.evaluate("window.inTime = AbortSignal.timeout.bind(AbortSignal); AbortSignal.timeout = () => inTime(0)")
    open_notebook(page, legend)  # anywidget's two seconds are over at once
    page.evaluate("AbortSignal.timeout = inTime")
    ask_kernel(page, "legend.n_stages = 3")
    expect(page.locator(".dtfm-lab-foot")).to_contain_text("stage012")


def test_marks_of_a_frontier_of_one_plan_differ_and_a_line_that_is_not_drawn_has_no_key(
    page, open_notebook, ask_kernel
):
    one = '{"seconds": 0.30501, "dollars": 1.2, "by_token": 99.0, "words": "2 x 2", "pays": True}'
    open_notebook(
        page,
        [
            "from dtfm_lab.widgets.views.frontier import FrontierView\n"
            f"frontier = FrontierView(points=[{one}], bounds=[[1.2, 0.30500]])\nfrontier"
        ],
    )
    texts = page.locator(".dtfm-frontier-box text")
    texts.first.wait_for()
    told = texts.all_text_contents()
    assert len(told) == len(set(told)) > 4
    expect(page.locator(".dtfm-frontier-key")).to_be_hidden()
    ask_kernel(page, "frontier.bounds = [[0.6, 0.305], [1.2, 0.3]]")
    expect(page.locator(".dtfm-frontier-key")).to_be_visible()
