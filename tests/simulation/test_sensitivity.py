"""What an improvement brings is what simulating the improved network says, whether it was played again or not."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab import lab
from dtfm_lab.domain.errors import JobError, PlanError, UnknownName
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.sensitivity import WHAT, Gain, gains, sensitivity_table
from dtfm_lab.simulation.simulate import simulate

SYNCHRONISATIONS = ["sharded", "sharded-at-once", "central", "ring", "hierarchical"]


def plan_of(n_stages: int, n_microbatches: int, n_replicas: int, seed: int = 0, tied: bool = False, **job) -> Plan:
    """Computations, latencies and messages of about a second each; two regions."""
    n, rng = n_stages * n_replicas, np.random.default_rng(seed)
    job = Job(
        model=gpt(n_layers=4, d_model=2, n_heads=1, seq_len=1, vocab_size=3, tied=tied),
        n_stages=n_stages,
        n_replicas=n_replicas,
        global_batch=n_replicas * n_microbatches,
        microbatch=1,
        **job,
    )
    latency_ms, gbps = 1e3 * rng.random((n, n)), 8e-9 * rng.uniform(2, 20, (n, n))
    regions = [f"r{d % 2}" for d in range(n)]
    hardware = {"gpu": "slow", "peak_flop_per_s": 1e3, "memory_bytes": 2**34}
    topology = Topology.from_matrices(latency_ms, gbps, regions=regions, **hardware)
    return evaluate(topology, job, stages=rng.permutation(n).reshape(n_stages, n_replicas).tolist())


def improved(plan: Plan, gain: Gain) -> Plan:
    """The plan on the network that a gain is about, changed by other means than its own."""
    topology = plan.topology
    if gain.what == "compute":
        faster = tuple(
            replace(d, peak_flop_per_s=d.peak_flop_per_s * gain.factor) if d.name == gain.name else d
            for d in topology.devices
        )
        return replace(plan, topology=replace(topology, devices=faster))
    for i, j in np.ndindex(len(topology), len(topology)):
        a, b = topology.devices[i], topology.devices[j]
        names = {"link": (a.name, b.name), "regions": (a.region, b.region)}[gain.of]
        told = {" - ".join(names), " - ".join(reversed(names))}
        if gain.of == "regions" and a.region == b.region:
            told = {f"links within {a.region}"}
        if i == j or gain.name not in told:
            continue
        latency_s, bandwidth = (
            topology.latency_s[i, j] / gain.factor,
            topology.bandwidth_bytes_per_s[i, j] * gain.factor,
        )
        changed = {"latency_s": latency_s} if gain.what == "latency" else {"bandwidth_bytes_per_s": bandwidth}
        topology = topology.with_link(i, j, one_way=True, **changed)
    return replace(plan, topology=topology)


def schedule_of(trace: Trace) -> Schedule:
    return Schedule.from_orders(trace.context.schedule, trace.context.orders)


@given(st.integers(0, 10_000), st.data())
@settings(max_examples=15, deadline=None)
def test_every_gain_is_what_simulating_the_improved_network_says(seed, data):
    n_stages, n_replicas = data.draw(st.sampled_from([(1, 3), (2, 1), (2, 3), (4, 2)]))
    job = {
        "tied": data.draw(st.booleans()),
        "synchronisation": data.draw(st.sampled_from(SYNCHRONISATIONS)),
        "synchronise_every": data.draw(st.sampled_from([1, 3])),
        "compression": data.draw(st.sampled_from(["none", "int8"])),
        "codec_bytes_per_s": 10.0,
    }
    plan = plan_of(n_stages, 4, n_replicas, seed, **job)
    name = data.draw(st.sampled_from(["gpipe", "1f1b", "zb-h1", "interleaved-1f1b" if n_stages == 2 else "gpipe"]))
    queueing = data.draw(st.sampled_from(["pairs", "cards"]))
    base = simulate(plan, name, queueing=queueing)
    # a faster device codes faster, too, which no network can say: the codec's speed is the job's
    what = WHAT if plan.job.compression == "none" else ("bandwidth", "latency")
    found = list(gains(plan, name, queueing=queueing, factor=1.5, what=what))
    assert [gain.number for gain in found] == list(range(1, len(found) + 1))
    assert {gain.total for gain in found} == {len(found)}
    for gain in found:
        again = simulate(improved(plan, gain), schedule_of(base), queueing=queueing)
        assert gain.before_s == pytest.approx(base.iteration_s)
        assert gain.iteration_s == pytest.approx(again.iteration_s)
        if queueing == "pairs":
            assert gain.iteration_s <= gain.before_s * (1 + 1e-12)


def test_only_links_that_carry_something_are_asked_about():
    plan = plan_of(4, 3, 1)
    table = lab.explain(plan).sensitivity("1f1b", what="bandwidth")
    names = [stage[0] for stage in plan.stages]
    pairs = {frozenset(pair) for pair in pairwise(names)}
    asked = table.loc[table["of"] == "link", "name"]
    assert {frozenset(name.split(" - ")) for name in asked} == pairs


def test_twice_the_bandwidth_halves_the_only_message_each_way():
    plan = plan_of(2, 1, 1)
    base = simulate(plan, "gpipe")
    (gain,) = gains(plan, "gpipe", factor=2, what="bandwidth")
    moving_s = sum(s.end_s - s.start_s for s in base.spans() if str(s.action.kind).startswith("SEND"))
    assert set(gain.name.split(" - ")) == {name for (name,) in plan.stages}
    assert gain.change_s == pytest.approx(-moving_s / 2)
    assert gain.change == pytest.approx(-moving_s / 2 / base.iteration_s)


def test_the_greatest_gain_comes_first_and_is_told_in_a_sentence():
    table = lab.explain(plan_of(2, 4, 3)).sensitivity("1f1b")
    assert table["change_s"].is_monotonic_increasing
    assert set(table["what"]) == set(WHAT)
    assert set(table["of"]) == {"link", "regions", "device"}

    def told(what: str, name: str, after_s: float, factor: float = 1.1) -> str:
        return Gain(
            what=what, of="link", name=name, factor=factor, before_s=10, iteration_s=after_s, number=1, total=1
        ).sentence

    assert told("bandwidth", "Tokyo - London", 9.69) == "10 % more bandwidth on Tokyo - London: -3.1 %"
    assert told("latency", "links within Ohio", 9.9958) == "9.1 % less latency on links within Ohio: -0.042 %"
    assert told("compute", "ada", 10, factor=3) == "ada computing 200 % faster: no change"
    assert told("bandwidth", "a - b", 10.2) == "10 % more bandwidth on a - b: +2 %"


def test_gains_come_one_by_one_and_may_be_left_at_any():
    plan = plan_of(2, 4, 3)
    some = gains(plan, "1f1b")
    rows = [next(some), next(some)]
    assert len(sensitivity_table(rows)) == 2
    assert rows[-1].number == 2 < rows[-1].total


def test_a_schedule_stays_as_it_was_chosen():
    plan = plan_of(4, 8, 1)
    table = lab.explain(plan).sensitivity("adaptive-1f1b", factor=100, what="latency")
    base = simulate(plan, "adaptive-1f1b")
    assert (table["iteration_s"] <= base.iteration_s * (1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"factor": 1}, PlanError, "factor of the sensitivity is 1; wanted more than 1, such as 1.1"),
        ({"factor": "2"}, PlanError, "factor of the sensitivity is '2'"),
        ({"factor": float("inf")}, PlanError, "wanted more than 1"),
        ({"what": "bandwith"}, UnknownName, "did you mean 'bandwidth'?"),
        ({"queueing": "lanes"}, UnknownName, "no queueing named 'lanes'"),
        ({"efficiency": 2}, JobError, "efficiency"),
    ],
)
def test_what_improves_nothing_is_refused(options, error, says):
    with pytest.raises(error, match=says):
        lab.explain(plan_of(2, 2, 1)).sensitivity("1f1b", **options)
