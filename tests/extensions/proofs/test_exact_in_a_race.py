"""The solver's thread counts as time of the planner that asked it, where planners race."""

import time
from types import SimpleNamespace

import pytest

import dtfm_lab as lab

pytest.importorskip("ipywidgets", reason="needs the lab extra")

from dtfm_lab.widgets.planner import race_panel as racing
from dtfm_lab.widgets.planner.race_panel import race


def test_a_solver_of_its_own_counts_as_its_planners(monkeypatch):
    """The race is over although the thread of the turns uses no time: the solver's thread uses it."""
    monkeypatch.setattr(racing, "time", SimpleNamespace(thread_time=lambda: 0.0, monotonic=time.monotonic))
    topology, job = lab.load_topology("worldwide"), lab.load_job("dtfm-gpt3-xl")
    began_s = time.process_time()
    last = list(race(topology, job, ["exact"], seed=0, cpu_s=0.6))[-1]
    assert last.gap > 0, "it has not proved its best"
    assert 0.6 <= last.seconds <= time.process_time() - began_s
