"""What an improvement brings is what simulating the improved network says, whether it was played again or not."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import cases

from dtfm_lab import lab
from dtfm_lab.domain.errors import JobError, PlanError, UnknownName
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.job.options import TRANSPORTS
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.schedule.task_graph import RECEIVE
from dtfm_lab.domain.trace import Trace
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.engine import PlacedTasks, TaskTimes
from dtfm_lab.simulation.sensitivity import WHAT, SensitivityGain, gains
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


def improved(plan: Plan, gain: SensitivityGain) -> Plan:
    """The plan on the network that a gain is about, changed by other means than its own."""
    topology = plan.topology
    if gain.what == "compute":
        faster = tuple(
            replace(d, peak_flop_per_s=d.peak_flop_per_s * gain.factor)
            if (gain.of == "kind" and f" {d.gpu} " in gain.name) or d.name == gain.name
            else d
            for d in topology.devices
        )
        return replace(plan, topology=replace(topology, devices=faster))
    for i, j in np.ndindex(len(topology), len(topology)):
        a, b = topology.devices[i], topology.devices[j]
        names = {"link": (a.name, b.name), "regions": (a.region, b.region)}.get(gain.of, ())
        told = {" - ".join(names), " - ".join(reversed(names))}
        if gain.of == "regions" and a.region == b.region:
            told = {f"links within {a.region}"}
        if gain.of == "network" and (not a.host or a.host != b.host):
            told = {gain.name}
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
    return Schedule.from_orders(trace.context.schedule, trace.context.plan.orders)


@given(st.integers(0, 10_000), st.data())
def test_every_gain_is_what_simulating_the_improved_network_says(seed, data):
    n_stages, n_replicas = data.draw(st.sampled_from([(1, 3), (2, 1), (2, 3), (4, 2)]))
    job = {
        "tied": data.draw(st.booleans()),
        "synchronisation": data.draw(st.sampled_from(SYNCHRONISATIONS)),
        "synchronise_every": data.draw(st.sampled_from([1, 3])),
        "compression": data.draw(st.sampled_from(["none", "int8"])),
        "transport": data.draw(st.sampled_from(TRANSPORTS)),
        "codec_bytes_per_s": 10.0,
    }
    plan = plan_of(n_stages, 4, n_replicas, seed, **job)
    name = data.draw(st.sampled_from(["gpipe", "1f1b", "zb-h1", "interleaved-1f1b" if n_stages == 2 else "gpipe"]))
    queueing = data.draw(st.sampled_from(["pairs", "nics"]))
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
        if queueing == "pairs" and plan.job.transport == "overlapped":  # a blocking sender may lose by an early turn
            assert gain.iteration_s <= gain.before_s * (1 + 1e-12)


def test_only_links_that_carry_something_are_asked_about():
    plan = plan_of(4, 3, 1)
    table = lab.explain(plan).sensitivity("1f1b", what="bandwidth")
    names = [stage[0] for stage in plan.stages]
    pairs = {frozenset(pair) for pair in pairwise(names)}
    asked = table.loc[table["of"] == "link", "name"]
    assert {frozenset(name.split(" - ")) for name in asked} == pairs


def test_the_greatest_gain_comes_first_and_is_told_in_a_sentence():
    table = lab.explain(plan_of(2, 4, 3)).sensitivity("1f1b")
    assert table["change_s"].is_monotonic_increasing
    assert set(table["what"]) == set(WHAT)
    assert set(table["of"]) == {"link", "regions", "network", "device", "kind"}

    def told(what: str, name: str, after_s: float, factor: float = 1.1) -> str:
        return SensitivityGain(
            what=what, of="link", name=name, factor=factor, before_s=10, iteration_s=after_s, number=1, total=1
        ).sentence

    assert told("bandwidth", "Tokyo - London", 9.69) == "10 % more bandwidth on Tokyo - London: -3.1 %"
    assert told("latency", "links within Ohio", 9.9958) == "9.1 % less latency on links within Ohio: -0.042 %"
    assert told("compute", "ada", 10, factor=3) == "ada computing 200 % faster: no change"
    assert told("bandwidth", "a - b", 10.2) == "10 % more bandwidth on a - b: +2 %"


def test_a_schedule_stays_as_it_was_chosen():
    plan = plan_of(4, 8, 1)
    table = lab.explain(plan).sensitivity("adaptive-1f1b", factor=100, what="latency")
    base = simulate(plan, "adaptive-1f1b")
    assert (table["iteration_s"] <= base.iteration_s * (1 + 1e-12)).all()


def hosts_of_two(**fields) -> Plan:
    """Six devices in three hosts of two, in two regions; of one kind, but for the last two."""
    plan = plan_of(1, 4, 6, seed=3, **fields)
    devices = tuple(
        replace(d, host=f"h{i // 2}", gpu="fast" if i > 3 else "slow") for i, d in enumerate(plan.topology.devices)
    )
    return plan.changed(topology=replace(plan.topology, devices=devices))


def test_all_devices_of_a_kind_and_all_network_cards_are_rows_too():
    plan = hosts_of_two(synchronisation="ring")
    table = lab.explain(plan).sensitivity()
    names = table[table["of"].isin(["network", "kind"])].groupby("what")["name"].agg(sorted).to_dict()
    assert names == {
        "bandwidth": ["all 3 NICs"],
        "latency": ["all links between hosts"],
        "compute": ["all 2 fast devices", "all 4 slow devices"],
    }
    for gain in gains(plan, what=["bandwidth", "latency"]):
        if gain.of == "network":
            assert gain.iteration_s == pytest.approx(simulate(improved(plan, gain)).iteration_s)


def test_equally_slow_pipelines_gain_only_from_all_devices_of_their_kind():
    topology = Topology.from_matrices(np.zeros((5, 5)), np.full((5, 5), 1e3), gpu="H100", memory_bytes=2**40)
    job = lab.load_job("tiny", n_stages=1, n_replicas=4, global_batch=16, microbatch=1)
    plan = evaluate(topology, job, stages=[[0, 1, 2, 3]])
    table = lab.explain(plan).sensitivity(what="compute")
    kind, alone = table[table["of"] == "kind"].iloc[0], table[table["of"] == "device"]
    assert kind["name"] == "all 4 H100 devices in use"
    assert kind["sentence"].startswith("all 4 H100 devices in use computing 10 % faster: -")
    assert table.index[table["of"] == "kind"].tolist() == [0]
    assert (alone["change"].abs() < 1e-3).all()
    assert kind["change"] < -0.05


def test_one_device_of_a_kind_and_links_that_are_a_row_already_are_not_repeated():
    table = lab.explain(plan_of(2, 2, 1)).sensitivity()
    assert "network" not in set(table["of"]), "one link is all there is"
    lone = plan_of(1, 2, 3)
    devices = tuple(replace(d, region="here", gpu=f"gpu {i}") for i, d in enumerate(lone.topology.devices))
    table = lab.explain(lone.changed(topology=replace(lone.topology, devices=devices))).sensitivity()
    assert set(table["of"]) == {"link", "regions", "device"}


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


# in a fixed order: nothing gets better by getting longer, and slack is how much longer does not matter


seeds = st.integers(0, 10_000)


def in_the_order_of(simulated: TaskTimes) -> PlacedTasks:
    """The same tasks, every queue served in the order in which it was then, whichever is ready first."""
    served, taking_turns = np.flatnonzero(simulated.before >= 0), np.flatnonzero(simulated.ahead >= 0)
    sources = np.concatenate([simulated.before[served], simulated.ahead[taking_turns]])
    return replace(simulated.tasks, extra_edges=(sources, np.concatenate([served, taking_turns])))


def replayed(simulated: TaskTimes, delay_s: np.ndarray) -> np.ndarray:
    """Every end, queues served in the order in which they were, each start put off by so much: from the rules."""
    whole = simulated.tasks.graph
    source = whole.sources
    behind: list[list[int]] = [[] for _ in range(len(whole))]
    for a, b in zip(source.tolist(), whole.successors.tolist(), strict=True):
        behind[b].append(a)
    start_s, end_s = np.zeros(len(whole)), np.zeros(len(whole))
    for i in simulated.order:
        earliest_s = max((end_s[j] for j in behind[i]), default=0.0)
        if simulated.before[i] >= 0:
            earliest_s = max(earliest_s, end_s[simulated.before[i]])
        if simulated.ahead[i] >= 0:
            earliest_s = max(earliest_s, end_s[simulated.ahead[i]])
        if whole.role[i] == RECEIVE:
            earliest_s = max(earliest_s, start_s[whole.partner[i]] + simulated.latency_s[whole.partner[i]])
        start_s[i] = earliest_s + delay_s[i]
        end_s[i] = start_s[i] + simulated.duration_s[i]
    return end_s


@given(cases)
def test_the_order_in_which_it_happened_gives_the_same_again(case):
    simulated = case.simulated()
    again = in_the_order_of(simulated).simulate(case.links)
    for one, other in (
        (again.start_s, simulated.start_s),
        (again.end_s, simulated.end_s),
        (again.before, simulated.before),
    ):
        assert (one == other).all()
    assert replayed(simulated, np.zeros(len(simulated.end_s))) == pytest.approx(simulated.end_s)


@given(cases, st.sampled_from(["duration", "latency", "bandwidth"]), seeds)
def test_in_a_fixed_order_nothing_ends_earlier_when_anything_takes_longer(case, what, seed):
    simulated, rng = case.simulated(), np.random.default_rng(seed)
    tasks, links = in_the_order_of(simulated), case.links
    shape = tasks.compute_s.shape if what == "duration" else links.latency_s.shape
    factor = np.where(rng.random(shape) < 0.2, rng.uniform(1, 4, shape), 1.0)
    if what == "duration":
        tasks = replace(tasks, compute_s=tasks.compute_s * factor)
    elif what == "latency":
        links = replace(links, latency_s=links.latency_s * factor)
    else:
        links = replace(links, bandwidth_bytes_per_s=links.bandwidth_bytes_per_s / factor)
    worse = tasks.simulate(links)
    assert (worse.end_s >= simulated.end_s).all()
    assert (worse.start_s >= simulated.start_s).all()
    assert (worse.before == simulated.before).all()


@given(cases, seeds, st.floats(0.01, 5))
def test_slack_is_how_much_later_anything_can_start(case, seed, later_s):
    """Put off by more than its slack, any action makes the end later by exactly the rest."""
    simulated = case.simulated()
    slack_s, end_s = simulated.slack_s, simulated.makespan_s
    assert slack_s.min() >= -1e-9 * end_s
    rng = np.random.default_rng(seed)
    for i in rng.integers(0, len(slack_s), 3):
        for delay_s in (0.9 * slack_s[i], slack_s[i] + later_s):
            delays_s = np.zeros(len(slack_s))
            delays_s[i] = delay_s
            expected_s = end_s + max(delay_s - slack_s[i], 0.0)
            assert replayed(simulated, delays_s).max() == pytest.approx(expected_s, rel=1e-9)


@given(cases)
def test_the_chain_of_what_each_waited_for_last_is_contiguous_and_has_no_slack(case):
    simulated = case.simulated()
    whole, i = simulated.tasks.graph, int(simulated.end_s.argmax())
    whole_s, tiny_s = 0.0, 1e-9 * simulated.makespan_s
    while True:
        before = int(simulated.after[i])
        assert simulated.slack_s[i] <= tiny_s
        if before < 0:
            begins_s = 0.0
        elif whole.role[i] == RECEIVE and before == whole.partner[i]:
            assert simulated.start_s[i] == pytest.approx(simulated.start_s[before] + simulated.latency_s[before])
            begins_s = simulated.end_s[before] if simulated.latency_s[before] else simulated.start_s[i]
        else:
            assert simulated.start_s[i] == simulated.end_s[before]
            begins_s = simulated.end_s[before]
        whole_s += simulated.end_s[i] - begins_s
        if before < 0:
            assert simulated.start_s[i] == 0
            break
        i = before
    assert whole_s == pytest.approx(simulated.makespan_s)


def test_gains_are_on_the_iteration_of_the_plans_own_efficiency():
    plan = plan_of(2, 3, 2).changed(efficiency=0.8)
    first = next(gains(plan))
    assert first.before_s == pytest.approx(simulate(plan).iteration_s)
    assert first.before_s < next(gains(plan_of(2, 3, 2))).before_s


def test_gains_of_links_over_which_passes_scatter_gradients_are_those_of_the_improved_network():
    plan = plan_of(2, 2, 2, sharding="zero-2")
    for gain in gains(plan, what=["bandwidth", "latency"]):
        assert gain.iteration_s == pytest.approx(simulate(improved(plan, gain)).iteration_s)
