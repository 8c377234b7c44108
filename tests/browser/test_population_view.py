"""The teaching search alone in a cell."""

from playwright.sync_api import expect

POPULATION = """
import numpy as np
import dtfm_lab as lab
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.planning.teaching import teach
from dtfm_lab.planning.teaching_operators import places_of
from dtfm_lab.widgets.views.population import PopulationView, cells_of
topology, job = lab.load_topology("worldwide"), lab.load_job("dtfm-gpt3-xl")
frames = list(teach(topology, job, np.random.default_rng(0), most_generations=20))
taken = []
view = PopulationView(taken.append, height=520)
view.begin(cells_of(*places_of(topology, pair_costs(topology, job)), topology.names))
view.extend(frames)
view.is_over = True
view
"""


def test_a_child_tells_of_its_parents_and_the_curve_is_scrubbed(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [POPULATION])
    page.wait_for_selector(".dtfm-population[data-frames='21']")
    ask_kernel(page, "view.frame = 20")
    page.wait_for_selector(".dtfm-population[data-frame='20']")
    expect(page.locator(".dtfm-tile")).to_have_count(20)
    child = "next(i for i in view.frames[20].individuals if i.operator == 'crossover')"
    number = ask_kernel(page, f"print({child}.number)").strip()
    page.locator(f".dtfm-tile[data-number='{number}']").click()
    eventually(page, "view.chosen", int(number))
    expect(page.locator(".dtfm-parent")).to_have_count(2)
    expect(page.locator(".dtfm-card")).to_contain_text("as in ")
    page.get_by_role("button", name="Use this plan").click()
    eventually(page, "taken", [int(number)])
    page.get_by_role("slider", name="Generation").press("Home")
    eventually(page, "(view.frame, view.playing)", (0, False))
    page.get_by_role("button", name="Play").click()
    eventually(page, "view.playing", True)
