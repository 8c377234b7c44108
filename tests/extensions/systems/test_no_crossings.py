"""Crossings of nothing are refused in a line."""

from test_refused_figures import refuses_to_draw

import dtfm_lab as lab
from dtfm_lab import figures
from dtfm_lab.extensions.systems.api import Crossings
from dtfm_lab.extensions.systems.variations import variation


def test_crossings_of_no_values_are_refused():
    plan = lab.plan("lecture-hall", "tiny", steps=1)
    axis = variation("bandwidth", plan.topology, plan.job, between="hosts")
    nothing = Crossings(topology=plan.topology, job=plan.job, axis=axis, systems=())
    refuses_to_draw(lambda: figures.crossings(nothing), "crossings of no values")
