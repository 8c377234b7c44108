"""Who is to blame for the error of an iteration: those that differ, not those that wait for them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_traces import lecture_hall_plan, measured, with_factor

from dtfm_lab.compare import compare
from dtfm_lab.compare.blame import NOTABLE
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.job.options import TRANSPORTS
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import Trace
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.simulate import simulate

PLAN = lecture_hall_plan()
NAMES = PLAN.topology.names
LINKS = sorted(simulate(PLAN).to_frame()["link"].unique())[1:]


def compared(plan=PLAN, schedule="1f1b", queueing="pairs", **truth):
    return compare(simulate(plan, schedule, queueing=queueing), measured(plan, schedule, queueing=queueing, **truth))


@given(st.sampled_from(LINKS), st.sampled_from(["gpipe", "1f1b"]), st.sampled_from(["bandwidth", "latency"]))
def test_a_link_that_is_secretly_worse_is_named_first(link, schedule, what):
    source, target = link.split(" -> ")
    worse = {"bandwidth": 0.5} if what == "bandwidth" else {"latency": 3.0}
    found = compared(schedule=schedule, truth=with_factor(PLAN.topology, source, target, **worse), noise=0.01)
    if found.blame.error_s >= 2 * NOTABLE * found.measured.iteration_s:
        first = found.suspects.iloc[0]
        assert (first["of"], first["name"]) == ("link", link)
        assert first["what"] == ("duration" if what == "bandwidth" else "latency")
        assert first["ratio"] == pytest.approx(2.0 if what == "bandwidth" else 3.0, rel=0.03)
        assert first["longer_s"] == pytest.approx(found.blame.error_s, rel=0.25)
    else:
        others = found.suspects[found.suspects["name"] != link]
        assert (others["share"].abs() < 2 * NOTABLE).all()


@given(st.integers(0, 3), st.integers(0, 1), st.floats(1.4, 3.0), st.sampled_from(["gpipe", "1f1b", "zb-h1"]))
def test_a_slowed_device_is_named_first(stage, replica, factor, schedule):
    first = compared(schedule=schedule, slow={(stage, replica): factor}, noise=0.01).suspects.iloc[0]
    assert (first["of"], first["name"], first["what"]) == ("device", PLAN.device_names[stage][replica], "duration")
    assert first["ratio"] == pytest.approx(factor, rel=0.05)
    assert f"computations take {first['ratio']:.1f} times the predicted" in first["sentence"]


@pytest.mark.parametrize("queueing", ["pairs", "nics"])
@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_named_where_all_errors_are_noise(queueing, seed):
    found = compared(queueing=queueing, noise=0.02, seed=seed)
    assert not len(found.suspects)
    assert found.headline.endswith("no link and no device stands out.") or "No link" in found.headline
    assert "no link and no device alone" in found.blame.verdict or "as predicted" in found.blame.verdict


@pytest.mark.parametrize("queueing", ["pairs", "nics"])
@pytest.mark.parametrize(
    ("schedule", "synchronisation"),
    [
        *((name, "sharded") for name in sorted(schedules)),
        *(("gpipe", name) for name in ("sharded-at-once", "ring", "hierarchical", "central")),
    ],
)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_whole_error_is_shared_out(schedule, queueing, synchronisation, transport):
    stages = [[0, 1, 2, 3], [4, 5, 6, 7]]
    plan = lecture_hall_plan(stages, n_stages=2, n_replicas=4, synchronisation=synchronisation, transport=transport)
    found = compared(plan, schedule, queueing, slow={(0, 1): 1.7, (1, 3): 0.5}, noise=0.2, iterations=2)
    error_s = (found.iterations["measured_s"] - found.iterations["predicted_s"]).mean()
    assert found.blame.table["longer_s"].sum() == pytest.approx(error_s, rel=1e-6, abs=1e-12)


def test_local_updates_are_blamed_iteration_by_iteration_as_often_as_they_come():
    plan = lecture_hall_plan(synchronise_every=3)
    found = compared(plan, slow={(1, 0): 2.0}, iterations=6)
    error_s = found.measured.iteration_s - found.predicted_iteration_s
    assert found.blame.table["longer_s"].sum() == pytest.approx(error_s)
    assert found.suspects.iloc[0]["name"] == plan.device_names[1][0]
    once = compared(slow={(2, 1): 2.0}, iterations=1).suspects.iloc[0]
    assert (once["name"], once["low_s"]) == (PLAN.device_names[2][1], -np.inf)


def test_one_iteration_of_each_kind_does_not_tell_how_sure_an_error_is():
    plan = lecture_hall_plan(synchronise_every=2)
    alone, again = (compared(plan, slow={(1, 0): 2.0}, iterations=n).blame.table for n in (2, 3))
    assert (alone["low_s"] == -np.inf).all()
    assert (alone["high_s"] == np.inf).all()
    assert np.isfinite(again[["low_s", "high_s"]]).all(axis=None)


def test_a_slow_link_that_makes_little_difference_is_named_after_those_that_do():
    truth = with_factor(PLAN.topology, "ada", "barbara", bandwidth=0.5)
    found = compared(schedule="gpipe", truth=with_factor(PLAN.topology, "barbara", "edsger", bandwidth=0.1))
    assert found.suspects["name"].tolist() == ["barbara -> edsger"]
    assert found.links["arrival_error_s"].abs().max() > 0.1, "though nearly all messages came late"
    assert "Suspect: link barbara → edsger: messages take 10.0 times the predicted" in found.headline
    alone = compared(schedule="gpipe", truth=truth).suspects
    assert alone["name"].tolist() == ["ada -> barbara"]
    assert abs(alone["share"][0]) < NOTABLE
    assert alone["own_s"][0] > NOTABLE * simulate(PLAN, "gpipe").iteration_s
    truth = with_factor(truth, "barbara", "edsger", bandwidth=0.5)
    assert compared(schedule="gpipe", truth=truth).suspects["name"].tolist() == ["barbara -> edsger", "ada -> barbara"]


def test_on_the_real_clock_delays_belong_to_who_started_late():
    ran = measured(PLAN, "gpipe", iterations=3)
    late = np.array([a.kind is Kind.STEP and a.stage == 2 for a in ran.actions])[ran.action] & (ran.replica == 1)
    ran = replace(ran, start_s=ran.start_s + 0.1 * late, end_s=ran.end_s + 0.1 * late)
    first = compare(simulate(PLAN, "gpipe"), ran).suspects.iloc[0]
    assert (first["name"], first["what"]) == (PLAN.device_names[2][1], "delay")
    assert "begin later than they could" in first["sentence"]


def test_the_order_on_a_nic_is_told_after_who_changed_it():
    found = compared(schedule="gpipe", queueing="nics", slow={(1, 1): 1.5})
    first, *others = found.suspects.itertuples(index=False)
    assert (first.of, first.name) == ("device", PLAN.device_names[1][1])
    nics = [row for row in others if row.of == "nic"]
    assert all("messages come in another order than predicted" in row.sentence for row in nics)
    assert others[len(others) - len(nics) :] == nics


def test_a_trace_that_takes_no_time_is_as_short_as_it_is():
    ran = measured(PLAN, iterations=1)
    nothing = replace(ran, start_s=0 * ran.start_s, end_s=0 * ran.end_s)
    assert "shorter than predicted" in compare(simulate(PLAN, "1f1b"), nothing).verdict


def test_a_trace_without_its_schedule_has_no_suspects_and_says_why():
    ran = measured(PLAN)
    bare = Trace.from_spans(replace(ran.context, plan=replace(ran.context.plan, orders=())), ran.spans())
    found = compare(simulate(PLAN, "1f1b"), bare)
    with pytest.raises(TraceError, match="does not hold its schedule"):
        _ = found.blame
    assert found.suspects.empty
    assert "No link or device can be suspected: " in found.headline
    assert "does not hold its schedule" in found.summary()["verdict"]
