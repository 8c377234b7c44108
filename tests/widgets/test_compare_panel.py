"""The panel that names suspects and refits, on an event loop like the kernel's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from dtfm_lab import lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.compare_panel import ComparePanel


async def until(holds: Callable[[], bool], patience_s: float = 30.0) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


def measured_elsewhere(plan: Plan) -> Trace:
    """What the plan would have measured with its first link at half the bandwidth."""
    a, b = plan.stages[0][0], plan.stages[1][0]
    topology = plan.topology
    half = topology.bandwidth_bytes_per_s[topology.index(a), topology.index(b)] / 2
    ran = lab.simulate(replace(plan, topology=topology.with_link(a, b, bandwidth_bytes_per_s=half)), "gpipe")
    context = replace(ran.context, source="measured", topology_fingerprint=topology.fingerprint)
    return replace(ran, context=context)


def bench_and_panel() -> tuple[Bench, ComparePanel, Plan]:
    plan = lab.evaluate("lecture-hall", "tiny", stages=[[0, 2], [4, 6], [1, 3], [5, 7]])
    bench = Bench()
    bench.plan = plan
    return bench, ComparePanel(bench), plan


def test_suspects_come_first_and_a_refit_shows_the_new_error() -> None:
    async def story() -> None:
        bench, panel, plan = bench_and_panel()
        assert panel.refit.layout.display == "none"
        bench.comparison = lab.compare(lab.simulate(plan, "gpipe"), measured_elsewhere(plan))
        await until(lambda: panel.blame.value != "")
        first = bench.comparison.suspects["sentence"][0].replace("->", "→")
        assert panel.blame.value.startswith('<div class="dtfm-line dtfm-warning"')
        assert first in panel.blame.value.split("</div>")[0]
        assert bench.comparison.drift.sentence.split(";")[0].replace("->", "→") in panel.blame.value
        panel.refit.click()
        assert panel.refit.layout.display == ""
        await until(lambda: "as fitted" in panel.fitted.value)
        assert "+0.00% as fitted" in panel.fitted.value
        assert ", bandwidth</th>" in panel.fitted.value
        assert not panel.refit.disabled
        bench.comparison = None
        assert (panel.blame.value, panel.fitted.value) == ("", "")

    asyncio.run(story())


def test_a_refit_of_a_plan_that_did_not_run_is_one_line() -> None:
    async def story() -> None:
        bench, panel, plan = bench_and_panel()
        bench.plan = lab.evaluate(plan.topology, plan.job, stages=[[2, 0], [4, 6], [1, 3], [5, 7]])
        bench.comparison = lab.compare(lab.simulate(plan, "gpipe"), measured_elsewhere(plan))
        panel.refit.click()
        await until(lambda: "wanted the same" in panel.fitted.value)
        assert "dtfm-warning" in panel.fitted.value
        assert not panel.refit.disabled

    asyncio.run(story())
