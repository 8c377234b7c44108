"""What no figure can be drawn of is refused in a line that names what was found and what is wanted."""

import pandas as pd
import pytest

import dtfm_lab as lab
from dtfm_lab import figures
from dtfm_lab.domain.job import Job
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory

SWEPT = pd.DataFrame({"schedule": ["gpipe", "1f1b"], "bandwidth": [1, 2], "iteration_s": [1.0, 2.0]})
EDGE = "wanted a hop from 0 to 6 or two of the stages 0 to 7"


def one_stage(plan):
    return evaluate(plan.topology, Job.from_bytes(1, 2, gradient_bytes=1e8, activation_bytes=1e7), stages=[[0, 1]])


REFUSED = {
    "a plan as a network": (lambda s: figures.network(s.small), "a figure network of <Plan .*; wanted a Topology"),
    "a plan as a trace": (lambda s: figures.gantt(s.small), "a figure gantt of <Plan .*; wanted a Trace"),
    "a trace as a plan": (lambda s: figures.coarse_graph(s.predicted), "coarse_graph of <Trace .*; wanted a Plan"),
    "a plan as its memory": (lambda s: figures.memory_over_time(s.small), "wanted a MemoryReport"),
    "a plan as a sweep": (lambda s: figures.sweep(s.small), "wanted a DataFrame"),
    "a plan as sensitivities": (lambda s: figures.sensitivity(s.small), "wanted a DataFrame or a Draws"),
    "a plan as a picture": (lambda s: figures.save(s.small, "plan.png"), "wanted a Figure"),
    "a plan as its search": (lambda s: figures.convergence(s.small), "wanted the steps of a search"),
    "a plan as a change": (lambda s: figures.replans(s.small), "wanted a Replan, or several"),
    "a plan of another network": (lambda s: figures.network(s.small.topology, s.large), "wanted a plan for this one"),
    "no link property": (lambda s: figures.link_matrix(s.small.topology, of="latencies"), "did you mean 'latency'"),
    "an edge beyond": (lambda s: figures.matching(s.large, 7), EDGE),
    "an edge before": (lambda s: figures.matching(s.large, -1), EDGE),
    "an edge to itself": (lambda s: figures.matching(s.large, (0, 0)), EDGE),
    "an edge to no stage": (lambda s: figures.matching(s.large, (0, 8)), EDGE),
    "an edge of three": (lambda s: figures.matching(s.large, (1, 2, 3)), EDGE),
    "an edge of one stage": (lambda s: figures.matching(one_stage(s.small), 0), "a plan of two stages or more"),
    "no plans": (lambda s: figures.cost_breakdown(), "no plans"),
    "no axis": (lambda s: figures.convergence(s.steps, against="second"), "did you mean 'seconds'"),
    "no steps": (lambda s: figures.convergence([]), "wanted at least one"),
    "no searches": (lambda s: figures.convergence({}), "wanted at least one"),
    "a search without steps": (lambda s: figures.convergence({"a": []}), "wanted at least one"),
    "no such iteration": (lambda s: figures.gantt(s.measured, iteration=3), "iteration is 3; wanted .*, 0 to 2"),
    "iterations from the end": (lambda s: figures.gantt(s.predicted, against=s.measured, iteration=-1), "0 to 2"),
    "no such lane": (lambda s: figures.gantt(s.predicted, lanes=["recieve"]), "did you mean 'receive'"),
    "no lanes": (lambda s: figures.gantt(s.predicted, lanes=[]), "no lanes"),
    "two placements": (lambda s: figures.gantt(s.predicted, against=simulate(s.large)), "different placements"),
    "no such device": (lambda s: figures.memory_over_time(memory(s.small), devices=["eve"]), "plan named 'eve'"),
    "no losses": (lambda s: figures.losses(s.predicted), "simulated trace holds no losses"),
    "no result": (lambda s: figures.sweep(SWEPT, "time"), "no result of a sweep named 'time'"),
    "no setting": (lambda s: figures.sweep(SWEPT, x="queueing"), "no varied setting of this sweep named 'queueing'"),
    "a sweep of no rows": (lambda s: figures.sweep(SWEPT.head(0)), "no rows"),
    "three settings": (lambda s: figures.sweep(SWEPT.assign(queueing=["pairs", "nics"])), "varies 3 .*one queueing"),
    "no sensitivity": (lambda s: figures.sensitivity(SWEPT), "no column what, of, name"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_drawn_is_refused_in_a_line(what, samples):
    draw, says = REFUSED[what]
    refuses_to_draw(lambda: draw(samples), says)


def refuses_to_draw(draw, says: str) -> None:
    """Hold a figure of the wrong thing to a line that says so."""
    with pytest.raises(lab.LabError, match=says):
        draw()
