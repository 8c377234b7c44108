"""256 devices: how long the lab takes to be made, and an edit."""

from __future__ import annotations

import numpy as np
from browser import Figure, LabInBrowser, rested
from serving import REPOSITORY

N_EDITS = 10
MADE_S, EDIT_MS = 1.5, 50.0
MAKING = """
import json, time, copy, asyncio
import dtfm_lab as lab
topology = lab.load_topology("wide.yaml")
job = lab.load_job("gpt3-xl", n_stages=16, n_replicas=16, global_batch=1024, microbatch=1)
lab.Lab(lab.load_topology("lecture-hall"), autosave=False, live=False)  # what the first lab of a kernel imports
began_s, computed_s = time.perf_counter(), time.thread_time()
the_lab = lab.Lab(topology, job, autosave=False)
made_s = time.perf_counter() - began_s, time.thread_time() - computed_s
late_s = []
async def watch():
    while True:
        asleep_s = time.perf_counter()
        await asyncio.sleep(0.01)
        late_s.append(time.perf_counter() - asleep_s - 0.01)
watching = asyncio.get_running_loop().create_task(watch())
def edit(number):
    document = copy.deepcopy(the_lab.network_panel.drawing.document)
    links = document["between"]
    links[number]["latency_ms"] = links[number]["latency_ms"] * 1.3 + 1
    began_s, computed_s = time.perf_counter(), time.thread_time()
    the_lab.network_panel.drawing.document = document
    return 1000 * (time.perf_counter() - began_s), 1000 * (time.thread_time() - computed_s)
the_lab
"""


def many(browser: LabInBrowser) -> list[Figure]:
    worldwide = (REPOSITORY / "topologies" / "worldwide.yaml").read_text(encoding="utf-8")
    (browser.jupyter.folder / "wide.yaml").write_text(worldwide.replace("count: 8", "count: 32"), encoding="utf-8")
    browser.open([MAKING])
    browser.jupyter.run_all(browser.page)
    browser.page.locator(".dtfm-lab .dtfm-cause").first.wait_for()
    browser.until("the_lab.plan is not None", patience_s=120)
    rested(browser)
    made_s, made_computing_s = browser.ask("print(json.dumps(made_s))")
    rows_ms = []
    browser.ask("late_s.clear()")
    for number in range(N_EDITS):
        rows_ms.append(browser.ask(f"print(json.dumps(edit({number})))"))
        browser.settle(1.5)
    late_ms = browser.ask("print(json.dumps(1000 * max(late_s)))")
    edits_ms, computing_ms = np.transpose(rows_ms)
    note = f"median of {N_EDITS}, worst {max(edits_ms):.0f} ms; {np.median(computing_ms):.0f} ms of it computing; "
    note += f"the kernel's loop was late by {late_ms:.0f} ms at most"
    return [
        Figure("256 devices: lab made", made_s, "s", MADE_S, note=f"{made_computing_s:.2f} s of it computing"),
        Figure("256 devices: edit", float(np.median(edits_ms)), "ms", EDIT_MS, note=note),
    ]
