"""Why an iteration took so long: a chain without gaps, and idle time that adds up, cause by cause."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.job import MODELS, Job, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import COMPUTE, PASSES, Action
from dtfm_lab.domain.trace import CAUSES, PATH, ComputeTime, RunContext, Trace, TracedPlan
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.simulate import simulate

IDLE = [f"{cause}_s" for cause in CAUSES]
seeds = st.integers(0, 10_000)
sizes = st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 3))
"""stages, micro-batches, replicas"""


def told(devices, rows):
    """A trace from rows of (action, replica, start, end, row waited for), seconds."""
    context = RunContext(
        source="simulated", clock="model", schedule="gpipe", links="specified", plan=TracedPlan(devices=devices)
    )
    actions = tuple(dict.fromkeys(Action.parse(row[0]) for row in rows))
    number = [actions.index(Action.parse(row[0])) for row in rows]
    _, replica, start_s, end_s, after = (np.array(column) for column in zip(*rows, strict=True))
    iteration = np.zeros(len(rows), dtype=np.int64)
    return Trace(context, actions, iteration, replica, np.array(number), start_s * 1.0, end_s * 1.0, after)


def idle_of(trace: Trace, device: str) -> dict[str, float]:
    """Its seconds by cause, what is 0 left out."""
    row = trace.bubble.set_index("device").loc[device]
    return {name.removesuffix("_s"): float(row[name]) for name in ["busy_s", *IDLE] if row[name]}


def plan_of(size: tuple[int, int, int], seed: int = 0, **job) -> Plan:
    """Uneven, asymmetric links whose times matter beside computations of a second."""
    n_stages, n_microbatches, n_replicas = size
    n, rng = n_stages * n_replicas, np.random.default_rng(seed)
    job = Job(
        model=gpt(n_layers=2 * n_stages, d_model=1, n_heads=1, seq_len=1, vocab_size=1),
        n_stages=n_stages,
        n_replicas=n_replicas,
        global_batch=n_replicas * n_microbatches,
        microbatch=1,
        **job,
    )
    latency_ms, gbps = 1e3 * rng.random((n, n)), 8e-9 * rng.uniform(0.5, 50, (n, n))
    topology = Topology.from_matrices(latency_ms, gbps, regions=[f"r{d % 2}" for d in range(n)])
    return evaluate(topology, job, stages=rng.permutation(n).reshape(n_stages, n_replicas).tolist())


def seconds_of(plan: Plan, seed: int) -> list[ComputeTime]:
    """Every computation of every device takes its own time; some take none."""
    job, rng = plan.job, np.random.default_rng(seed)
    stages, replicas = range(job.n_stages * job.stages_per_device), range(job.n_replicas)
    lengths = rng.choice([0.0, 1.0, 2.0, 2.5], size=(len(stages), len(replicas), len(COMPUTE)))
    return [
        ComputeTime(s, r, kind, float(lengths[s, r, k]))
        for s in stages
        for r in replicas
        for k, kind in enumerate(COMPUTE)
    ]


def any_trace(data: st.DataObject, size: tuple[int, int, int], seed: int) -> Trace:
    synchronisation = data.draw(st.sampled_from(["sharded", "sharded-at-once", "central", "ring", "hierarchical"]))
    every = data.draw(st.sampled_from([1, 1, 3]))
    plan = plan_of(size, seed, synchronisation=synchronisation, synchronise_every=every)
    names = ["gpipe", "1f1b", "zb-h1"] + (["interleaved-1f1b"] if size[1] % size[0] == 0 else [])
    schedule = schedules[data.draw(st.sampled_from(names))](size[0], size[1])
    queueing = data.draw(st.sampled_from(["pairs", "nics"]))
    return simulate(plan, schedule, queueing=queueing, profile=seconds_of(plan, seed))


THERE_AND_BACK = told(
    (("a",), ("b",)),
    [
        ("0F0", 0, 0, 2, -1),
        ("0SEND_F0", 0, 2, 5, 0),
        ("1RECV_F0", 0, 3, 6, 1),
        ("1F0", 0, 6, 8, 2),
        ("1B0", 0, 8, 12, 3),
        ("1SEND_B0", 0, 12, 15, 4),
        ("0RECV_B0", 0, 13, 16, 5),
        ("0B0", 0, 16, 20, 6),
    ],
)


def test_one_micro_batch_there_and_back_is_all_critical():
    path = THERE_AND_BACK.critical_path()
    assert path["row"].tolist() == list(range(8))
    what = ["compute", "bandwidth", "latency", "compute"]
    assert path["what"].tolist() == [*what, what[0], *what[1:]]
    assert (path["end_s"] - path["start_s"]).tolist() == [2, 3, 1, 2, 4, 3, 1, 4]
    assert path["link"].tolist() == ["", "a -> b", "a -> b", "", "", "b -> a", "b -> a", ""]
    assert path["device"].tolist() == ["a", "a", "b", "b", "b", "b", "a", "a"]


def test_a_device_waits_for_the_other_and_for_both_ways_of_the_link():
    assert idle_of(THERE_AND_BACK, "a") == {"busy": 6, "dependency": 6, "latency": 2, "bandwidth": 6}
    before_and_after = {"dependency": 2 + 4, "latency": 2, "bandwidth": 6}
    assert idle_of(THERE_AND_BACK, "b") == {"busy": 6, **before_and_after}


def test_the_summary_tells_the_whole_by_what_and_by_where():
    summary = THERE_AND_BACK.critical_summary()
    by_what = summary[summary["by"] == "what"].set_index("name")["seconds"].to_dict()
    assert by_what == {"compute": 12, "bandwidth": 6, "latency": 2}
    by_place = summary[summary["by"] != "what"].set_index("name")
    assert by_place["seconds"].to_dict() == {"a": 6, "b": 6, "a -> b": 4, "b -> a": 4}
    assert by_place["share"].sum() == pytest.approx(1)


def test_only_what_a_computation_takes_beyond_the_median_is_a_stragglers():
    lengths_s = [2, 2, 7]
    trace = told((("a", "b", "c"),), [("0F0", r, 0, s, -1) for r, s in enumerate(lengths_s)])
    assert idle_of(trace, "a") == {"busy": 2, "straggler": 5}
    assert idle_of(trace, "c") == {"busy": 7}
    assert trace.critical_path()["what"].tolist() == ["compute"]


def test_a_message_in_the_way_on_a_busy_link_is_a_queue():
    trace = told(
        (("a",), ("b",)),
        [
            ("0F0", 0, 0, 1, -1),
            ("0F1", 0, 1, 2, 0),
            ("0SEND_F0", 0, 1, 4, 0),
            ("0SEND_F1", 0, 4, 7, 2),
            ("1RECV_F0", 0, 2, 5, 2),
            ("1RECV_F1", 0, 5, 8, 3),
            ("1F0", 0, 5, 6, 4),
            ("1F1", 0, 8, 9, 5),
        ],
    )
    path = trace.critical_path()
    assert path["action"].tolist() == ["0F0", "0SEND_F0", "0SEND_F1", "1RECV_F1", "1F1"]
    assert path["what"].tolist() == ["compute", "queue", "bandwidth", "latency", "compute"]
    assert idle_of(trace, "a") == {"busy": 2, "queue": 2, "bandwidth": 3, "latency": 1, "dependency": 1}


def test_a_message_in_the_way_at_the_receiving_nic_is_a_queue_from_end_to_end():
    """Two pipelines whose messages come in at one NIC: b's latency is over when a's is in."""
    trace = told(
        (("a", "b"), ("c", "d")),
        [
            ("0F0", 0, 0, 1, -1),
            ("0SEND_G+1", 0, 1, 4, 0),
            ("0RECV_G+1", 0, 2, 3, 0),
            ("0F0", 1, 0, 1, -1),
            ("0SEND_F0", 0, 1, 3, 0),
            ("1RECV_F0", 0, 2, 4, 4),
            ("0SEND_F1", 0, 3, 5, 4),
            ("1RECV_F1", 0, 4, 6, 5),
            ("1F1", 0, 6, 8, 7),
        ],
    )
    path = trace.critical_path()
    assert path["action"].tolist() == ["0F0", "0SEND_F0", "1RECV_F0", "1RECV_F1", "1F1"]
    assert path["what"].tolist() == ["compute", "queue", "queue", "bandwidth", "compute"]
    assert idle_of(trace, "c") == {"busy": 2, "queue": 3, "bandwidth": 2, "dependency": 1}


def test_synchronisation_is_one_cause_with_its_messages_and_the_step():
    trace = told(
        (("a", "b"),),
        [
            ("0B0", 0, 0, 1, -1),
            ("0B0", 1, 0, 1, -1),
            ("0SEND_G+1", 0, 1, 4, 0),
            ("0RECV_G-1", 1, 2, 5, 2),
            ("0REDUCE", 1, 5, 6, 3),
            ("0STEP", 1, 6, 8, 4),
        ],
    )
    assert idle_of(trace, "a") == {"busy": 1, "synchronisation": 7}
    assert idle_of(trace, "b") == {"busy": 4, "synchronisation": 4}
    assert set(trace.critical_path()["what"][1:]) == {"synchronisation"}


@pytest.mark.parametrize(("n_stages", "n_microbatches"), [(1, 4), (3, 1), (4, 8)])
def test_on_free_links_gpipe_is_idle_for_a_forward_and_a_backward_a_stage(n_stages, n_microbatches):
    plan = plan_of((n_stages, n_microbatches, 1))
    n = len(plan.topology)
    free = Topology.from_matrices(np.zeros((n, n)), np.full((n, n), 1e20))
    seconds = {kind: 2.0 if kind == "B" else float(kind in PASSES) for kind in COMPUTE}
    profile = [ComputeTime(s, 0, kind, seconds[kind]) for s in range(n_stages) for kind in COMPUTE]
    bubble = simulate(replace(plan, topology=free), "gpipe", profile=profile).bubble
    assert np.allclose(bubble["dependency_s"], 3 * (n_stages - 1))
    assert np.allclose(bubble["busy_s"], 3 * n_microbatches)
    assert np.allclose(bubble["busy_s"] + bubble["dependency_s"], bubble["iteration_s"])


@given(sizes, seeds, st.data())
@settings(max_examples=40)
def test_every_devices_seconds_add_up_to_the_iteration(size, seed, data):
    trace = any_trace(data, size, seed)
    bubble = trace.bubble
    assert (bubble[["busy_s", *IDLE]] >= 0).all(axis=None)
    assert np.allclose(bubble[["busy_s", *IDLE]].sum(axis=1), bubble["iteration_s"], rtol=1e-12, atol=1e-9)
    assert np.allclose(bubble["iteration_s"], trace.iteration_s)
    assert bubble["device"].tolist() == [name for group in trace.context.devices for name in group]
    if trace.n_iterations == 1:
        frame = trace.to_frame()
        computing = frame[frame["lane"] == "compute"].assign(busy_s=frame["end_s"] - frame["start_s"])
        assert np.allclose(computing.groupby("device")["busy_s"].sum()[bubble["device"]], bubble["busy_s"])


@pytest.mark.parametrize("sharding", ["none", "zero-1"])
def test_seconds_add_up_although_averaging_overlaps_the_backward(sharding):
    """Sums of gradients that take no time lie inside a part of a backward, which is still running at their end."""
    between = 1.0 - np.eye(4)
    topology = Topology.from_matrices(0.005 * between, 3600 * between + np.eye(4), gpu="H100")
    given = {"n_stages": 1, "n_replicas": 4, "microbatch": 8, "global_batch": 64}
    job = Job(model=MODELS["gpt2-small"], overlap=True, sharding=sharding, **given)
    bubble = simulate(evaluate(topology, job, stages=[[0, 1, 2, 3]])).bubble
    assert np.allclose(bubble[["busy_s", *IDLE]].sum(axis=1), bubble["iteration_s"], rtol=1e-12)
    assert np.allclose(bubble["dependency_s"], 0.0), "there is no other stage to wait for"


@given(sizes, seeds, st.data())
@settings(max_examples=40)
def test_the_critical_path_has_no_gaps_and_is_as_long_as_the_iteration(size, seed, data):
    trace = any_trace(data, size, seed)
    for iteration, whole_s in zip(np.unique(trace.iteration), trace.iteration_ends_s, strict=True):
        path = trace.critical_path(iteration)
        assert list(path.columns) == PATH
        assert (path["end_s"] > path["start_s"]).all()
        assert path["start_s"].tolist() == [0.0, *path["end_s"][:-1]][: len(path)]
        assert path["end_s"].max() == whole_s or not len(path)
        begun = trace.start_s[path["row"]]
        received = path["kind"].str.startswith("RECV").to_numpy()
        assert np.array_equal(begun[~received], path["start_s"][~received])
        summary = trace.critical_summary(iteration)
        for told_by in (summary["by"] == "what", summary["by"] != "what"):
            assert summary.loc[told_by, "seconds"].sum() == pytest.approx(whole_s)


def test_the_iteration_nearest_the_typical_one_is_told_where_none_is_asked_for():
    plan = plan_of((2, 2, 2), synchronise_every=4)
    trace = simulate(plan, "1f1b", profile=seconds_of(plan, 1))
    alone, together = trace.critical_path(2), trace.critical_path(3)
    assert trace.critical_path().equals(alone)
    assert not alone.equals(together)


@pytest.mark.parametrize(
    ("times_and_after", "says"),
    [
        ([(0, 1, 1), (0, 2, -1)], "0F0. begins at 0.0 s; wanted where row 1, which it waited for, ends"),
        ([(1, 2, -1), (0, 3, -1)], "0F0. begins at 1.0 s; wanted where its iteration begins"),
        ([(1, 1, 1), (1, 1, 0)], "after runs in a circle"),
    ],
    ids=["earlier", "for nothing", "circle"],
)
def test_what_was_waited_for_must_agree_with_the_times(times_and_after, says):
    rows = [("0F0", r, start, end, after) for r, (start, end, after) in enumerate(times_and_after)]
    trace = told((("a", "b", "idle"),), rows)
    for ask in (lambda: trace.bubble, trace.critical_path, trace.critical_summary):
        with pytest.raises(TraceError, match=says):
            ask()


def test_a_trace_without_causes_or_such_an_iteration_is_refused():
    unknown = replace(THERE_AND_BACK, after=None)
    for ask in (lambda: unknown.bubble, unknown.critical_path, unknown.critical_summary):
        with pytest.raises(TraceError, match="this simulated trace does not know what each action waited for; wanted"):
            ask()
    with pytest.raises(TraceError, match="iteration is 3; wanted one that was traced, 0 to 0"):
        THERE_AND_BACK.critical_path(3)
