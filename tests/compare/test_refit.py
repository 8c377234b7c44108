"""Fitted to a measurement, the links and the profile are those of what was measured, also in unequal pipelines."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_traces import lecture_hall_plan, measured, with_factor

import dtfm_lab as lab
from dtfm_lab.compare import compare
from dtfm_lab.compare.dependencies import dependencies_of, programs_of
from dtfm_lab.compare.errors import estimate
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.plan import cut_subplan, subplan_for
from dtfm_lab.domain.schedule import RECEIVES, SENDS
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import signed_share
from dtfm_lab.simulation import engine
from dtfm_lab.simulation.measured_predecessors import with_predecessors
from dtfm_lab.simulation.simulate import simulate

PLAN = lecture_hall_plan()


def refitted(plan, ran, **how):
    return compare(simulate(plan, ran.context.schedule, **how), ran).refit(plan, simulate)


def other_network(rng):
    """Every direction of every link up to four times better or worse than drawn."""
    topology = PLAN.topology
    n = len(topology)
    factors = np.exp(rng.uniform(-np.log(4), np.log(4), (2, n, n)))
    off = ~np.eye(n, dtype=bool)
    bandwidth = topology.bandwidth_bytes_per_s.copy()
    bandwidth[off] *= factors[0][off]
    return replace(topology, latency_s=topology.latency_s * factors[1], bandwidth_bytes_per_s=bandwidth)


def of_link(table, what):
    rows = table[table["what"] == what]
    pairs = [name.split(" -> ") for name in rows["name"]]
    return rows, np.array([[PLAN.topology.index(a), PLAN.topology.index(b)] for a, b in pairs]).T


@given(st.integers(0, 2**32 - 1), st.sampled_from(["gpipe", "1f1b"]))
@settings(max_examples=10)
def test_another_network_is_found_under_noise(seed, schedule):
    truth = other_network(np.random.default_rng(seed))
    ran = measured(PLAN, schedule, truth=truth, noise=0.05, seed=seed, slow={(1, 0): 2.0})
    found = refitted(PLAN, ran)
    rows, (i, j) = of_link(found.table, "bandwidth_bytes_per_s")
    assert rows["fitted"].to_numpy() == pytest.approx(truth.bandwidth_bytes_per_s[i, j], rel=0.1)
    rows, (i, j) = of_link(found.table, "latency_s")
    assert rows["fitted"].to_numpy() == pytest.approx(truth.latency_s[i, j], rel=1e-6)
    assert found.topology.latency_s[i, j] == pytest.approx(rows["fitted"].to_numpy())
    assert abs(found.error) < 0.03
    assert abs(found.checked_error) < 0.1, "what it is checked on is as noisy"


def test_without_noise_the_refit_is_the_truth_and_says_what_is_off():
    truth = with_factor(PLAN.topology, "barbara", "edsger", bandwidth=0.5, latency=3.0)
    found = refitted(PLAN, measured(PLAN, truth=truth, slow={(3, 1): 1.5}))
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.checked_error == pytest.approx(0, abs=1e-9)
    assert found.error_before > 0.01
    off = found.off
    assert set(off.loc[off["of"] == "link", "name"]) == {"barbara -> edsger"}
    assert set(off.loc[off["of"] == "stage", "name"]) == {PLAN.device_names[3][1]}
    assert f"{signed_share(found.error_before)} as drawn" in found.sentence


@pytest.mark.parametrize("iterations", [1, 3, 8])
def test_the_truth_lies_in_95_of_100_intervals(iterations):
    hits = []
    for seed in range(12):
        found = refitted(PLAN, measured(PLAN, "1f1b", noise=0.1, iterations=iterations, seed=seed))
        rows, _ = of_link(found.table, "bandwidth_bytes_per_s")
        rows = rows[rows["count"] >= 4]
        truth = rows["drawn"]
        hits += ((rows["low"] <= truth) & (truth <= rows["high"])).tolist()
    assert 0.9 < np.mean(hits) < 0.99


def test_the_mean_of_lognormal_noise_is_in_its_interval():
    rng, hits = np.random.default_rng(0), []
    for _ in range(400):
        iteration = np.repeat(np.arange(5), 8)
        values = 2.0 + rng.standard_normal(40)
        found = estimate(values, iteration, np.mean)
        hits.append(found.low <= 2.0 <= found.high)
    assert estimate(np.array([3.0]), np.array([0]), np.median) == (3.0, -np.inf, np.inf)
    assert np.mean(hits) == pytest.approx(0.95, abs=0.03)


def real(ran: Trace) -> Trace:
    """On real links a receive begins with its send and there is no telling latency from bytes within it."""
    number = {action: i for i, action in enumerate(ran.actions)}
    start_of = dict(zip(zip(ran.iteration, ran.replica, ran.action, strict=True), ran.start_s, strict=True))
    start_s = ran.start_s.copy()
    n_replicas = len(ran.context.devices[0])
    for row in range(len(ran)):
        action = ran.actions[ran.action[row]]
        if action.kind in RECEIVES:
            stage, other = action.other_end(int(ran.replica[row]), n_replicas)
            send = next(
                a for a in ran.actions
                if a.kind in SENDS and a.stage == stage and a.counterpart() == action
            )  # fmt: skip
            start_s[row] = start_of[ran.iteration[row], other, number[send]]
    return replace(ran, context=replace(ran.context, clock="real", links="real"), start_s=start_s)


def test_on_real_links_sizes_tell_latency_from_bandwidth_where_there_are_two():
    plan = lecture_hall_plan([[0, 1], [2, 3]], n_stages=2, n_replicas=2, synchronisation="sharded-at-once")
    ran = real(measured(plan, truth=with_factor(plan.topology, "ada", "alan", bandwidth=0.5)))
    table = refitted(plan, ran).table
    links = table[table["of"] == "link"].set_index(["name", "what"])
    one_size = links[links["note"] != ""]
    assert (one_size["note"].str.contains("one size: latency as drawn")).all()
    latency = one_size.xs("latency_s", level="what")
    assert (latency["fitted"] == latency["drawn"]).all()
    assert (latency["low"] == 0).all()
    bandwidth = one_size.xs("bandwidth_bytes_per_s", level="what")
    assert np.isinf(bandwidth["high"]).all()
    assert bandwidth.drop("ada -> alan", errors="ignore")["fitted"].to_numpy() == pytest.approx(
        bandwidth.drop("ada -> alan", errors="ignore")["drawn"].to_numpy(), rel=1e-6
    )


def test_on_real_links_messages_of_two_sizes_give_both():
    """A tied embedding's gradient goes the way of activations and is of another size."""
    plan = lecture_hall_plan([[0], [1]], n_stages=2, n_replicas=1, global_batch=8)
    model = plan.job.model
    sizes = {name: getattr(model, name) for name in ("d_model", "n_heads", "seq_len", "vocab_size")}
    plan = replace(plan, job=replace(plan.job, model=gpt(n_layers=model.n_blocks, tied=True, **sizes)))
    found = refitted(plan, real(measured(plan))).table
    links = found[found["of"] == "link"]
    assert (links["note"] == "").all()
    assert links["fitted"].to_numpy() == pytest.approx(links["drawn"].to_numpy(), rel=1e-6)


def test_real_messages_quicker_than_the_drawn_latency_count_as_bandwidth():
    free = replace(PLAN.topology, latency_s=PLAN.topology.latency_s * 0)
    table = refitted(PLAN, real(measured(PLAN, truth=free))).table
    quick = table[(table["what"] == "latency_s") & table["note"].str.startswith("quicker")]
    assert len(quick)
    assert (quick["fitted"] == 0).all()


@pytest.mark.parametrize("queueing", ["pairs", "nics"])
@pytest.mark.parametrize("every", [1, 2])
def test_queues_and_local_updates_do_not_hide_the_links(queueing, every):
    plan = lecture_hall_plan(synchronise_every=every)
    truth = with_factor(plan.topology, "barbara", "edsger", bandwidth=0.5)
    ran = measured(plan, truth=truth, queueing=queueing, iterations=4)
    found = refitted(plan, ran, queueing=queueing)
    assert set(found.off["name"]) == {"barbara -> edsger"}
    assert found.error == pytest.approx(0, abs=1e-9)


def test_a_link_drawn_by_message_size_is_fitted_as_latency_and_bandwidth():
    n = len(PLAN.topology)
    sizes = np.array([1e4, 1e6])
    times = np.full((n, n, 2), np.nan)
    times[0, 2] = [0.003, 0.1]
    plan = replace(PLAN, topology=replace(PLAN.topology, message_bytes=sizes, message_s=times))
    found = refitted(plan, measured(plan))
    assert set(found.table.loc[found.table["note"] != "", "name"]) == {"ada -> barbara"}
    assert found.topology.message_s is None
    assert found.error == pytest.approx(0, abs=1e-6)


def test_the_summary_is_plain_json_and_infinite_bounds_are_null():
    found = refitted(PLAN, measured(PLAN, iterations=1, truth=with_factor(PLAN.topology, "ada", "alan", bandwidth=0.5)))
    assert found.checked_error is None
    summary = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert {"of", "name", "what", "drawn", "fitted", "low", "high", "note"} < summary["values"][0].keys()
    assert any(row["high"] is None for row in summary["values"])


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (lecture_hall_plan([(1, 0), (2, 3), (4, 5), (6, 7)]), "ran on stages .* wanted the same"),
        (replace(PLAN, topology=with_factor(PLAN.topology, "ada", "alan", bandwidth=0.5)), "ran on network .* wanted"),
        (lecture_hall_plan(global_batch=2 * PLAN.job.global_batch), "ran with n_microbatches .* wanted the same"),
    ],
    ids=["placement", "network", "batch"],
)
def test_a_refit_of_another_plan_is_refused_in_one_line(plan, says):
    ran = measured(PLAN)
    with pytest.raises(TraceError, match=says):
        compare(simulate(PLAN, "1f1b"), ran).refit(plan, simulate)


@pytest.mark.slow
@pytest.mark.parametrize("queueing", ["pairs", "nics"])
def test_a_link_that_is_not_as_drawn_is_named_and_found(queueing: str) -> None:
    pytest.importorskip("torch")
    plan = lecture_hall_plan([[0], [2], [4], [6]], n_replicas=1, global_batch=8)
    other = with_factor(plan.topology, "barbara", "edsger", bandwidth=0.25, latency=3.0)
    ran = lab.run(plan, "gpipe", iterations=4, clock="virtual", emulated=other, queueing=queueing)
    comparison = lab.compare(lab.simulate(plan, like=ran), ran)
    assert comparison.suspects["name"].iloc[0] == "barbara -> edsger"
    found = comparison.refit(plan, lab.simulate)
    links = found.off[found.off["of"] == "link"].set_index("what")
    assert set(links["name"]) == {"barbara -> edsger"}
    i, j = other.index("barbara"), other.index("edsger")
    assert links.at["bandwidth_bytes_per_s", "fitted"] == pytest.approx(other.bandwidth_bytes_per_s[i, j])
    assert links.at["latency_s", "fitted"] == pytest.approx(other.latency_s[i, j])


SHARES = (6, 2)
SCHEDULES = ["gpipe", "1f1b", "zb-h1", "adaptive-1f1b"]


def plan_of(**fields):
    return lecture_hall_plan(microbatches_per_replica=SHARES, **fields)


@pytest.mark.parametrize("synchronisation", ["sharded", "ring", "hierarchical", "central"])
@pytest.mark.parametrize("queueing", ["pairs", "nics"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_trace_tells_the_programs_and_what_each_action_waited_for(schedule, queueing, synchronisation):
    plan = plan_of(synchronisation=synchronisation, synchronise_every=2)
    ran = measured(plan, schedule, queueing=queueing, iterations=2)
    for synchronise in (False, True):
        programs = programs_of(ran, synchronise=synchronise)
        wanted = engine.programs_of(plan, ran.context.recorded_schedule, synchronise=synchronise)
        assert programs.microbatch_counts == SHARES
        assert (programs.pipelines, programs.tails) == (wanted.pipelines, wanted.tails)
        dependencies_of(ran, synchronise=synchronise)
    if queueing == "nics":
        return
    found = with_predecessors(ran, plan, ran.context.recorded_schedule)
    assert found.after is not None
    assert (found.after >= -1).all()
    path = found.critical_path()
    assert path["end_s"].iloc[-1] == pytest.approx(found.iteration_ends_s[found.typical_iteration])
    predicted = simulate(plan, ran.context.recorded_schedule, queueing=queueing)
    table = found.bubble
    assert table["busy_s"].to_numpy() == pytest.approx(predicted.bubble["busy_s"].to_numpy())


def test_a_fit_finds_what_is_off_in_a_short_pipeline():
    plan = plan_of()
    source, target = plan.device_names[1][1], plan.device_names[2][1]
    truth = with_factor(plan.topology, source, target, bandwidth=0.5, latency=3.0)
    ran = measured(plan, truth=truth, slow={(0, 1): 1.5})
    found = compare(simulate(plan, "1f1b"), ran).refit(plan, simulate)
    assert abs(found.error) < 1e-6
    assert set(found.off["name"]) == {f"{source} -> {target}", plan.device_names[0][1]}
    part, kept = subplan_for(plan, (2, 2))
    context = replace(measured(part).context, rehearsed=kept)
    rehearsed = replace(measured(part, slow={(1, 1): 3.0}), context=context)
    assert rehearsed.context.plan.microbatch_counts == SHARES
    assert abs(compare(simulate(plan, like=rehearsed), rehearsed).refit(plan, simulate).error) < 1e-6
    assert cut_subplan(plan, kept).job.microbatch_counts == SHARES


def test_traces_of_other_shares_are_not_compared():
    ran = measured(plan_of())
    for fields, found in (({}, "4"), ({"microbatches_per_replica": (2, 6)}, "2 to 6")):
        other = simulate(lecture_hall_plan(**fields), "1f1b")
        with pytest.raises(TraceError, match=f"ran {found} micro-batches a pipeline, measured 2 to 6; wanted"):
            compare(other, ran)
