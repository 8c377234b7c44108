"""Step 3: eight devices of a world-wide network on one GPU, in turn, training a GPT of 355 million parameters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from alone import CLOSE, largest_difference, losses_alone
from figures import Figure, Setting
from small import SMALL

import dtfm_lab as lab
from dtfm_lab.domain.plan import Plan

WITHIN = 0.05
CLOCKS = {"virtual": 4, "paced": 1}
"""Clock -> iterations. Eight workers in turns are paced some 40 times slower than the network's devices: minutes an
iteration."""


def measure(setting: Setting) -> Iterator[Figure]:
    """Traces are kept beside the report, as the lab's, as Chrome's and as a page with the Gantt chart."""
    plan = plan_of(setting.rehearses)
    n_workers = plan.job.n_stages * plan.job.n_replicas
    parameters = plan.job.modelled().parameters
    yield Figure(
        name="parameters",
        value=parameters / 1e6,
        unit="million",
        goal="350 or more",
        met=parameters >= 350e6,
        note=f"{n_workers} workers, {plan.job.n_stages} stages x {plan.job.n_replicas} replicas, fp32",
    )
    traces = {}
    for clock, iterations in CLOCKS.items():
        traces[clock] = trace = lab.run(plan, "1f1b", clock=clock, iterations=iterations, runs_on=setting.runs_on)
        stem = setting.folder / f"eight-devices-{clock}"
        lab.save(trace, stem.with_suffix(".json"))
        lab.save(trace, stem.with_suffix(".chrome.json"))
        lab.figures.gantt(trace).write_html(stem.with_suffix(".html"), include_plotlyjs="cdn")
        error = lab.compare(lab.simulate(plan, "1f1b", like=trace), trace).iteration_error
        ran = trace.context
        yield Figure(
            name=f"{clock} clock, predicted against measured",
            value=100 * error,
            unit="%",
            goal=f"within {WITHIN:.0%}",
            met=abs(error) <= WITHIN,
            note=f"{trace.iteration_s:.4g} s an iteration; {ran.late_messages} messages late, {ran.overruns} overruns",
        )
    # after the runs, which need the GPU's memory
    wanted = losses_alone(plan.job, max(CLOCKS.values()), setting.runs_on)
    for clock, trace in traces.items():
        losses = list(trace.context.losses)
        difference = largest_difference(losses, wanted[: len(losses)])
        yield Figure(
            name=f"{clock} clock, losses against one process",
            value=difference,
            unit="relative",
            goal=f"at most {CLOSE:g}",
            met=difference <= CLOSE,
            note=f"{len(losses)} steps",
        )


def plan_of(small: bool) -> Plan:
    """Devices spread evenly over the network; links are those of the network, whatever computes."""
    network = lab.load_topology("worldwide")
    chosen = np.linspace(0, len(network) - 1, 4 if small else 8).round().astype(int).tolist()
    sizes = {"n_stages": 2 if small else 4, "n_replicas": 2, "global_batch": 8, "microbatch": 1, "dtype": "fp32"}
    job = lab.load_job("tiny", model=SMALL if small else "gpt2-medium", **sizes)
    return lab.plan(network.subset(chosen), job, steps=20, seed=0)
