"""Plans and traces as JSON: bit for bit what was saved, or a refusal."""

import json
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtfm_lab.domain.errors import FileError, TraceError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import BandwidthEstimate, Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import ComputeTime, RunContext, Span, Trace, TracedPlan
from dtfm_lab.files import load_job, load_plan, load_topology, load_trace, save_job, save_plan, save_trace
from dtfm_lab.files.plans import plan_from_mapping, plan_to_mapping
from dtfm_lab.files.traces import losses, save_losses
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.simulate import simulate

COLUMNS = ("iteration", "replica", "action", "start_s", "end_s")


def small_plan() -> Plan:
    return evaluate(load_topology("lecture-hall"), load_job("tiny"), stages=[[0, 1], [3, 2], [4, 7], [6, 5]])


def assert_same_plan(a: Plan, b: Plan) -> None:
    for what in ("job", "lower_bound_s", "planner", "seed", "generation", "evaluations", "seconds"):
        assert getattr(a, what) == getattr(b, what)
    assert np.array_equal(a.placement.devices, b.placement.devices)
    for what in ("group_s", "hop_s", "weights_s"):
        assert np.array_equal(getattr(a.cost, what), getattr(b.cost, what))
    assert a.topology.fingerprint == b.topology.fingerprint
    assert a.topology.devices == b.topology.devices
    assert (a.topology.name, a.topology.description) == (b.topology.name, b.topology.description)


@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 3))
def test_any_plan_survives_saving_exactly(seed, n_stages, n_replicas):
    """Any floats at all, asymmetric links, idle devices, jobs of message sizes only."""
    rng, n = np.random.default_rng(seed), 10
    devices = tuple(
        Device(name=f"d{i}", peak_flop_per_s=rng.uniform(1, 1e15), position=(i, rng.random())) for i in range(n)
    )
    topology = Topology(devices, rng.random((n, n)), rng.uniform(1, 1e10, (n, n)))
    grid = rng.permutation(n)[: n_stages * n_replicas].reshape(n_stages, n_replicas)
    plan = evaluate(topology, Job.from_bytes(n_stages, n_replicas, *rng.uniform(0, 1e9, 2)), stages=grid.tolist())
    plan = replace(plan, planner="evolutionary", seed=seed, generation=3, evaluations=99, seconds=rng.random())
    assert_same_plan(plan_from_mapping(json.loads(json.dumps(plan_to_mapping(plan)))), plan)


def test_a_plan_file_keeps_how_sure_links_are_and_what_nobody_measured(tmp_path):
    guess = BandwidthEstimate("between hosts", 1e8, 5e7, 2e8)
    unsure = replace(small_plan().topology, link_spread=0.5, estimates=(guess,))
    plan = replace(small_plan(), topology=unsure)
    back = load_plan(save_plan(plan, tmp_path / "plan.json"))
    assert (back.topology.link_spread, back.topology.estimates) == (0.5, (guess,))
    assert simulate(back).interval() == simulate(plan).interval()


def test_the_summary_of_a_plan_file_is_for_people_and_not_read_back(tmp_path):
    data = plan_to_mapping(small_plan())
    assert data["summary"]["stages"][1] == list(small_plan().stages[1])
    assert_same_plan(plan_from_mapping(data | {"summary": {"cost_s": -1}}), small_plan())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(placment=d.pop("placement")), "unknown key 'placment'; did you mean 'placement'"),
        (lambda d: d.pop("cost"), "cost: field required"),
        (lambda d: d["placement"][0].__setitem__(0, 3), "device 3 is placed twice"),
        (lambda d: d["placement"][0].__setitem__(0, 8), "names device 8, but lecture-hall has 8"),
        (lambda d: d["placement"].pop(), "placement of 3 x 2; job wants 4 x 2"),
        (lambda d: d["placement"][0].pop(), ""),
        (lambda d: d["topology"]["latency_s"].pop(), r"latency_s has shape \(7, 8\), but there are 8 devices"),
        (lambda d: d["topology"]["latency_s"][0].__setitem__(1, -1), "ada -> alan: latency is -1.0"),
        (
            lambda d: d["topology"]["latency_s"][0].__setitem__(1, 9.0),
            "but the plan was priced for .*; wanted the network",
        ),
        (lambda d: d["topology"]["devices"][0].update(memory_bytes=0), "device ada: memory_bytes is 0.*; wanted"),
        (lambda d: d["job"].update(n_stages=0), "n_stages is 0; wanted a whole number"),
        (lambda d: d["job"].update(dtype="fp8"), "no dtype named 'fp8'"),
        (lambda d: d.update(seconds=float("nan")), "seconds of the search is nan; wanted 0 or more"),
        (lambda d: d.update(evaluations=-1), "evaluations of the search is -1; wanted 0 or more"),
    ],
    ids=range(14),
)
def test_a_plan_file_that_contradicts_itself_is_refused(tmp_path, change, says):
    data = plan_to_mapping(small_plan())
    change(data)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(data))
    with pytest.raises(FileError, match=rf"^mine\.json: .*{says}"):
        load_plan(path)


def measured(seed: int = 0) -> Trace:
    """A trace with every field of its context set, three iterations and times of all sizes."""
    simulated = simulate(small_plan(), "1f1b")
    rng = np.random.default_rng(seed)
    spans = [s._replace(iteration=i, end_s=s.end_s + rng.random() * 1e-9) for s in simulated.spans() for i in range(3)]
    context = replace(
        simulated.context,
        source="measured",
        clock="paced",
        links="emulated",
        time_scale=0.1,
        profile=(ComputeTime(0, 1, Kind.BACKWARD, 1 / 3),),
        losses=(2.5, 1 / 7),
        late_messages=2,
        overruns=3,
        versions={"torch": "2.4.0"},
    )
    return Trace.from_spans(context, spans)


@pytest.mark.parametrize("trace", [simulate(small_plan()), measured()], ids=["simulated", "measured"])
def test_a_trace_survives_saving_exactly(tmp_path, trace):
    back = load_trace(save_trace(trace, tmp_path / "trace.json"))
    for field in fields(trace.context):
        assert getattr(back.context, field.name) == getattr(trace.context, field.name), field.name
    assert back.actions == trace.actions
    for column in COLUMNS:
        assert np.array_equal(getattr(back, column), getattr(trace, column))
        assert getattr(back, column).dtype == getattr(trace, column).dtype
    assert back.spans() == trace.spans()
    assert back.to_frame().equals(trace.to_frame())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["start_s"].pop(), "columns have lengths .*; wanted one length"),
        (lambda d: d["end_s"].__setitem__(0, float("nan")), "a time that is not a number"),
        (lambda d: d["end_s"].__setitem__(0, -1.0), r"row 0 \(0F0\) ends before it starts"),
        (lambda d: d["context"].update(clock="sundial"), "context.clock: .*; found 'sundial'"),
        (lambda d: d["actions"][0].__setitem__(1, "SLEEP"), r"actions\[0\].*; found 'SLEEP'"),
        (lambda d: d.update(finish_s=d.pop("end_s")), "unknown key 'finish_s'"),
        (lambda d: d.pop("context"), "context: field required"),
    ],
    ids=range(7),
)
def test_a_trace_file_that_contradicts_itself_is_refused(tmp_path, change, says):
    path = save_trace(simulate(small_plan()), tmp_path / "mine.json")
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(FileError, match=rf"^mine\.json: .*{says}"):
        load_trace(path)


def test_counts_of_micro_batches_cuts_and_warmups_survive_saving(tmp_path):
    """In a plan's file, in a trace's and in a job's."""
    fields = {"microbatches_per_replica": (6, 2), "blocks_per_stage": (1, 3, 2, 2), "warmups": (3, 2, 2, 0)}
    job = load_job("tiny", **fields, schedule="adaptive-1f1b")
    grid = [[0, 1], [3, 2], [4, 7], [6, 5]]
    plan = evaluate(load_topology("lecture-hall"), job, stages=grid)
    assert {name: getattr(plan.job, name) for name in fields} == fields
    again = load_plan(save_plan(plan, tmp_path / "plan.json"))
    assert_same_plan(again, plan)
    assert load_job(save_job(job, tmp_path / "job.yaml")) == job
    trace = simulate(plan)
    assert trace.context.plan.microbatches_per_replica == (6, 2)
    loaded = load_trace(save_trace(trace, tmp_path / "trace.json"))
    assert loaded.context == trace.context
    assert simulate(again, like=loaded).start_s.tolist() == trace.start_s.tolist()


def trained(first: int, iterations: int, **context: object) -> Trace:
    """A run of one device that begins after so many iterations."""
    measured = RunContext(
        source="measured",
        clock="virtual",
        schedule="gpipe",
        links="emulated",
        plan=TracedPlan(devices=(("ada",),)),
        **context,
    )
    return Trace.from_spans(
        measured, [Span(first + i, 0, Action(0, Kind.FORWARD, 0), 0.0, 1.0) for i in range(iterations)]
    )


def test_a_file_of_a_trace_holds_what_is_of_the_plan_beside_the_rest(tmp_path):
    """As files of earlier versions do; a mistake names the key as it stands in the file."""
    path = save_trace(measured(), tmp_path / "trace.json")
    data = json.loads(path.read_text())
    assert data["context"]["devices"] == [list(group) for group in measured().context.devices]
    assert "plan" not in data["context"]
    for key, wrong, says in (("devices", None, "context.devices: "), ("tokens", "many", "context.tokens: ")):
        changed = data["context"] | {key: wrong}
        path.write_text(json.dumps(data | {"context": changed}))
        with pytest.raises(FileError, match=f"^trace.json: {says}"):
            load_trace(path)
    path.write_text(json.dumps(data | {"context": data["context"] | {"tokns": 1}}))
    with pytest.raises(FileError, match="tokns"):
        load_trace(path)


def test_a_row_holds_both_losses_of_the_same_parameters() -> None:
    table = losses(trained(0, 3, losses=(5.5, 5.0, 4.5), held_out=((2, 4.8), (3, 4.4)), unigram_entropy=3.1))
    assert table["iteration"].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(table["training_loss"], [5.5, 5.0, 4.5, np.nan])
    np.testing.assert_array_equal(table["held_out_loss"], [np.nan, np.nan, 4.8, 4.4])
    assert (table["unigram_entropy"] == 3.1).all()


def test_a_resumed_run_counts_on() -> None:
    assert losses(trained(10, 2, losses=(2.0, 1.9)))["iteration"].tolist() == [10, 11]
    assert losses(trained(2, 2, losses=(5.0, 4.0, 3.0, 2.0)))["iteration"].tolist() == [0, 1, 2, 3]


def test_the_file_reads_back_to_the_last_digit(tmp_path) -> None:
    trace = trained(0, 2, losses=(1 / 3, 2 / 3), held_out=((2, 0.1 + 0.2),))
    path = save_losses(trace, tmp_path / "losses.csv")
    assert path.read_text().splitlines()[0] == "iteration,training_loss,held_out_loss,unigram_entropy"
    pd.testing.assert_frame_equal(pd.read_csv(path), losses(trace))


def test_a_trace_without_losses_is_refused() -> None:
    trace = trained(0, 1, losses=(5.0,))
    with pytest.raises(TraceError, match="holds no losses"):
        losses(replace(trace, context=replace(trace.context, losses=())))
