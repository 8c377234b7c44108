"""256 devices: how long the lab takes to be made, and an edit."""

from __future__ import annotations

import numpy as np
from browser import Figure, LabInBrowser, rested

N_EDITS = 10
MADE_S, EDIT_MS = 1.5, 50.0
MAKING = """
import json, time, copy, asyncio
import numpy as np
import dtfm_lab as lab
rng = np.random.default_rng(0)
n, n_regions = 256, 16
regions = [f"region {i * n_regions // n}" for i in range(n)]
topology = lab.Topology.from_matrices(rng.uniform(5, 200, (n, n)), rng.uniform(0.3, 5, (n, n)), regions=regions)
job = lab.load_job("gpt3-xl", n_stages=16, n_replicas=16, global_batch=1024, microbatch=1)
lab.Lab(lab.load_topology("lecture-hall"), autosave=False, live=False)  # what the first lab of a kernel imports
began_s = time.perf_counter()
the_lab = lab.Lab(topology, job, autosave=False)
made_s = time.perf_counter() - began_s
late_s = []
async def watch():
    while True:
        asleep_s = time.perf_counter()
        await asyncio.sleep(0.01)
        late_s.append(time.perf_counter() - asleep_s - 0.01)
watching = asyncio.get_running_loop().create_task(watch())
def edit(number):
    document = copy.deepcopy(the_lab.network_panel.drawing.document)
    links = document.get("between") or document.get("links")
    links[number]["latency_ms"] = links[number]["latency_ms"] * 1.3 + 1
    began_s = time.perf_counter()
    the_lab.network_panel.drawing.document = document
    return 1000 * (time.perf_counter() - began_s)
the_lab
"""


def many(browser: LabInBrowser) -> list[Figure]:
    browser.open([MAKING])
    browser.jupyter.run_all(browser.page)
    browser.page.locator(".dtfm-lab .dtfm-cause").first.wait_for()
    browser.until("the_lab.plan is not None", patience_s=120)
    rested(browser)
    made_s = browser.ask("print(json.dumps(made_s))")
    edits_ms = []
    browser.ask("late_s.clear()")
    for number in range(N_EDITS):
        edits_ms.append(browser.ask(f"print(json.dumps(edit({number})))"))
        browser.settle(1.5)
    late_ms = browser.ask("print(json.dumps(1000 * max(late_s)))")
    note = f"median of {N_EDITS}, worst {max(edits_ms):.0f} ms; the kernel's loop was late by {late_ms:.0f} ms at most"
    return [
        Figure("256 devices: lab made", made_s, "s", MADE_S),
        Figure("256 devices: edit", float(np.median(edits_ms)), "ms", EDIT_MS, note=note),
    ]
