"""Figures of availabilities keep the laws of all figures."""

import pytest
from test_awkward_names import shows_names_as_written, steps  # noqa: F401  a fixture
from test_figures import (  # noqa: F401  the laws
    test_a_dark_copy_changes_the_page_and_not_the_data,
    test_every_figure_has_words_for_who_cannot_see_it,
    test_figures_have_a_title_a_height_and_no_latex,
    test_figures_need_no_network,
    test_no_figure_holds_a_nan_or_an_infinity,
    test_no_point_has_empty_words,
    test_visible_axes_of_numbers_carry_a_unit_or_a_noun,
)
from test_refused_figures import refuses_to_draw

from dtfm_lab import figures
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.availability_files import load_availability

MAKERS = {
    "availability": lambda: figures.availability(load_availability("volunteers-at-home")),
    "availability of many": lambda: figures.availability(load_availability("gcp-v100")),
    "availability of nobody": lambda: figures.availability(Availability.from_intervals({"a": []}, 60)),
}


@pytest.fixture(scope="session", params=MAKERS)
def figure(request):
    return MAKERS[request.param]()


def test_a_name_is_shown_as_it_is_written(steps):  # noqa: F811
    shows_names_as_written(figures.availability(Availability.steady(steps[-1].plan.topology, 60)))


def test_what_is_no_history_is_refused_in_a_line(steps):  # noqa: F811
    refuses_to_draw(lambda: figures.race(steps[-1].plan), "wanted histories, or a Race")
    refuses_to_draw(lambda: figures.history(steps[-1].plan), "wanted a History")
