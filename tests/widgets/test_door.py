"""The door: what it offers is real, whom it is offered to, and what a choice calls."""

import json
import re

import pytest

from dtfm_lab import lab
from dtfm_lab.files import topology_names
from dtfm_lab.lab.plans import opening_job
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.job_controls import JobControls
from dtfm_lab.widgets.shell.headline import headline, opening_words
from dtfm_lab.widgets.views import door as gallery
from dtfm_lab.widgets.views.door import Door


def test_pictures_are_of_plans_of_whole_networks():
    shown = gallery.cards()
    assert [card["name"] for card in shown] == [*gallery.TITLES, ""]
    for card in shown[:-1]:
        plan = gallery.plan_of(card["name"])
        assert card["picture"].startswith("<svg")
        assert card["picture"] != card["picture_dark"]
        assert len(plan.topology) == len(lab.load_topology(card["name"]))
        assert {name for group in plan.device_names for name in group} <= set(plan.topology.names)


def test_titles_count_what_the_networks_hold():
    for name, (title, _) in gallery.TITLES.items():
        topology = lab.load_topology(name)
        counts = [int(digits) for digits in re.findall(r"\d+", title)]
        assert counts in ([], [len(topology)], [len(topology), len(topology.regions)])


@pytest.mark.slow
@pytest.mark.parametrize("name", json.loads(gallery.PLANS.read_text("utf-8")))
def test_a_kept_plan_is_about_as_good_as_what_a_search_finds(name):
    kept = gallery.plan_of(name)
    found = lab.plan(kept.topology, kept.job, seed=0, seconds=1)
    assert kept.cost.total_s <= 1.05 * found.cost.total_s


def test_eight_cities_open_with_a_stage_in_each():
    topology, kept = lab.load_topology("worldwide"), gallery.plan_of("worldwide")
    regions = dict(zip(topology.names, [device.region for device in topology.devices], strict=True))
    assert [len({regions[name] for name in group}) for group in kept.stages] == [1] * 8
    state = LabState(topology=topology, plan=kept)
    controls = JobControls(state, opening_job(topology))
    assert state.job.global_batch == len(topology) < lab.load_job(state.job.name).global_batch
    said = headline(state, None, None, "Messages are slow.")
    assert said.rest == "Batch 64; the public code's default is 512."
    controls.batch.value = 512
    assert opening_words(state) == ""
    controls.take(lab.load_job("small"))
    controls.take(opening_job(topology))
    assert state.job.global_batch == len(topology), "a job is taken with its batch"


def test_every_bundled_network_has_a_picture_and_a_sentence():
    lines = gallery.networks()
    assert [line["name"] for line in lines] == list(topology_names())
    assert all(str(line["words"]).endswith(".") for line in lines)
    assert all(str(line["picture"]).startswith("<svg") for line in lines)
    assert gallery.first_sentence("One place, v1.5 of it; more.") == "One place, v1.5 of it."


def test_it_is_offered_until_it_is_closed():
    first = Door()
    first.offer()
    assert first.offered
    first.is_open = True
    first.is_open = False
    assert not first.offered


@pytest.mark.parametrize(
    ("message", "buffers", "told"),
    [
        ({"kind": "choose", "name": "worldwide"}, [], ("chosen", "worldwide")),
        ({"kind": "choose", "name": ""}, [], ("chosen", "")),
        ({"kind": "files", "names": ["a.yaml"]}, [memoryview(b"x")], ("files", [("a.yaml", b"x")])),
    ],
)
def test_a_choice_closes_it_and_is_told(message, buffers, told):
    heard = []
    opened = Door(lambda name: heard.append(("chosen", name)), lambda files: heard.append(("files", files)))
    opened.is_open = True
    opened.received(message, buffers)
    assert heard == [told]
    assert not opened.is_open
