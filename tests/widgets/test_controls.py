"""Controls that are made from options, and how they read."""

import pytest

from dtfm_lab.domain.job import JobOptions
from dtfm_lab.domain.options import options_of
from dtfm_lab.runtime.protocol.run_options import RunSettings
from dtfm_lab.widgets.controls import CHOICES, CHOOSES, LABELS, button, choices_of, control_for, disable
from dtfm_lab.widgets.planner.job_controls import Limits
from dtfm_lab.widgets.planner.search_panel import SearchSettings
from dtfm_lab.widgets.planner.teaching_panel import TeachingSettings

KINDS = (JobOptions, RunSettings, SearchSettings, Limits, TeachingSettings)
OPTIONS = {option.name: option for kind in KINDS for option in options_of(kind)}


def test_labels_and_choices_are_of_options_that_exist():
    assert set(LABELS) - {"global_batch", "microbatch"} <= set(OPTIONS)
    for name, texts in CHOICES.items():
        assert set(texts) <= set(OPTIONS[name].choices or ())
        assert len(set(texts.values())) == len(texts)


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_reads_plainly_and_keeps_its_name(name):
    control = control_for(OPTIONS[name])
    assert [value for _, value in choices_of(OPTIONS[name])] == list(OPTIONS[name].choices)
    assert control.value == OPTIONS[name].default


@pytest.mark.parametrize("name", ["synchronisation", "sharding", "overlap"])
def test_a_menu_shows_what_is_left_to_the_planner(name):
    control = control_for(OPTIONS[name])
    for value in (None, control.options[-1][1], None):
        control.value = value
        assert (control.value, control.label == CHOOSES) == (value, value is None)


def test_a_disabled_button_says_why_and_an_enabled_one_what_it_does():
    run = button("Run", "play", "Start real workers")
    disable(run, "there is no plan yet")
    disable(run, "the network has changed")
    assert (run.disabled, run.tooltip) == (True, "the network has changed")
    disable(run, "")
    assert (run.disabled, run.tooltip) == (False, "Start real workers")
    run.tooltip = "Start them again"
    disable(run, "busy")
    disable(run, "")
    assert run.tooltip == "Start them again"
