"""Names of values that were changed in this release: the former ones are understood, and say the new one once."""

import json
import warnings

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.registry import FORMER_NAMES, current_name, say_new_name
from dtfm_lab.files import load_plan, save_plan, save_trace

NETWORK = lab.Topology.from_matrices([[0, 5], [5, 0]], [[1, 1], [1, 1]])
PLAN = lab.evaluate(NETWORK, lab.load_job("tiny", n_stages=2, n_replicas=1), stages=[[0], [1]])
FORMER = "'cards' is 'nics' now"


@pytest.fixture(autouse=True)
def unsaid() -> None:
    say_new_name.cache_clear()


def test_a_former_name_is_said_once() -> None:
    with pytest.warns(FutureWarning, match=FORMER):
        assert current_name("queueing", "cards") == "nics"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert current_name("queueing", "cards") == "nics"
        assert current_name("queueing", "pairs") == "pairs"
        assert current_name("queueing", ["cards"]) == ["cards"]


@pytest.mark.parametrize("noun", sorted({noun for noun, _ in FORMER_NAMES}))
def test_former_names_are_no_names_any_more(noun: str) -> None:
    """Else a value could never have the name again."""
    former = {name for each, name in FORMER_NAMES if each == noun}
    assert former.isdisjoint(new for (each, _), new in FORMER_NAMES.items() if each == noun)


@pytest.mark.parametrize(
    "queueing_of",
    [
        lambda: lab.simulate(PLAN, queueing="cards").context.queueing,
        lambda: lab.plan(NETWORK, PLAN.job, objective="iteration", queueing="cards", steps=1, seed=0).queueing,
        lambda: PLAN.changed(queueing="cards").queueing,
        lambda: Links.of(NETWORK, "cards").queueing,
    ],
)
def test_calls_take_the_former_queueing(queueing_of) -> None:
    with pytest.warns(FutureWarning, match=FORMER):
        assert queueing_of() == "nics"


def test_files_may_hold_the_former_queueing(tmp_path) -> None:
    plan = PLAN.changed(queueing="nics")
    path = save_plan(plan, tmp_path / "plan.json")
    path.write_text(path.read_text().replace('"nics"', '"cards"'))
    with pytest.warns(FutureWarning, match=FORMER):
        assert load_plan(path).queueing == "nics"


def test_a_trace_of_hosts_that_shared_cards_is_one_of_shared_nics(tmp_path) -> None:
    hosts = lab.load_topology("shared-nics").subset([0, 1, 8, 9])
    trace = lab.simulate(lab.evaluate(hosts, lab.load_job("tiny", n_stages=2, n_replicas=2), stages=[[0, 1], [2, 3]]))
    path = save_trace(trace, tmp_path / "trace.json")
    data = json.loads(path.read_text())
    data["context"]["cards"] = data["context"].pop("nics")
    path.write_text(json.dumps(data))
    assert trace.context.nics
    assert lab.load_trace(path).context.nics == trace.context.nics


def test_the_former_name_of_a_network_opens_it() -> None:
    with pytest.warns(FutureWarning, match="'shared-cards' is 'shared-nics' now"):
        found = lab.load_topology("shared-cards")
    assert found.fingerprint == lab.load_topology("shared-nics").fingerprint


def test_links_that_a_trace_calls_drawn_are_those_specified(tmp_path) -> None:
    path = save_trace(lab.simulate(PLAN), tmp_path / "trace.json")
    path.write_text(path.read_text().replace('"links": "specified"', '"links": "drawn"'))
    with pytest.warns(FutureWarning, match="'drawn' is 'specified' now"):
        assert lab.load_trace(path).context.links == "specified"
