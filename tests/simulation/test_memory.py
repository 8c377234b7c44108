"""What devices hold: closed forms, published figures, torch's own tensors, and advice that keeps its word."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtfm_lab.costs.memory import activation_budget, activation_memory, static_memory
from dtfm_lab.domain.errors import JobError, ScheduleError, TraceError, UnknownName
from dtfm_lab.domain.job import BYTES_PER_ELEMENT, GPT3_XL, MODELS, Job, ModelSpec, boundary_bytes, gpt, needed_elements
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind, Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import GB, GiB, format_bytes
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.simulation.memory import (
    MOST_USED,
    memory,
    memory_summary,
    memory_words,
    over_bytes_when_played,
    remedies,
)
from dtfm_lab.simulation.schedules import peak_activations, schedules
from dtfm_lab.simulation.simulate import simulate

names = st.sampled_from(["gpipe", "1f1b", "zb-h1"])
counts = st.tuples(st.integers(1, 5), st.integers(1, 7))
"""stages, micro-batches"""
SMALL = gpt(n_layers=8, d_model=4, n_heads=2, seq_len=3, vocab_size=11, tied=False)
KINDS = (Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)


def topology_of(memory_bytes: list[float], seed: int = 0) -> Topology:
    """Links that take about as long as a computation, no two alike."""
    rng, n = np.random.default_rng(seed), len(memory_bytes)
    topology = Topology.from_matrices(1e-6 * rng.random((n, n)), rng.uniform(1, 20, (n, n)), peak_flop_per_s=1e12)
    devices = tuple(replace(d, memory_bytes=m) for d, m in zip(topology.devices, memory_bytes, strict=True))
    return replace(topology, devices=devices)


def plan_of(
    n_stages: int,
    n_microbatches: int,
    n_replicas: int = 1,
    *,
    model: ModelSpec = SMALL,
    memory_bytes: float | list[float] = float(GiB),
    seed: int = 0,
    **fields: object,
) -> Plan:
    """Device index = stage x replicas + replica."""
    n, microbatch = n_stages * n_replicas, int(str(fields.pop("microbatch", 1)))
    have = memory_bytes if isinstance(memory_bytes, list) else [memory_bytes] * n
    job = Job(
        model=model,
        n_stages=n_stages,
        n_replicas=n_replicas,
        global_batch=n_replicas * n_microbatches * microbatch,
        microbatch=microbatch,
        **fields,
    )
    groups = np.arange(n).reshape(n_stages, n_replicas).tolist()
    return evaluate(topology_of(have, seed), job, stages=groups)


def held_bytes(job: Job, n_stages: int) -> list[int]:
    """Of one micro-batch, by stage."""
    each = job.microbatch * BYTES_PER_ELEMENT[job.dtype]
    return [each * sum(layer.held_elements for layer in layers) for layers in job.layers_of(n_stages)]


def by_definition(plan: Plan, trace: Trace, position: int, replica: int, time_s: float) -> float:
    """Bytes beside the static part at one moment, span by span; without synchronisation and recomputation."""
    job, total = plan.job, 0.0
    spans = {s.action: s for s in trace.spans() if s.replica == replica}
    held = held_bytes(job, len(trace.context.devices) * trace.context.stages_per_device)

    def last(stage: int, m: int, *kinds: Kind) -> float:
        return max(s.end_s for a, s in spans.items() if a.stage == stage and a.microbatch == m and a.kind in kinds)

    def first(stage: int, m: int, *kinds: Kind) -> float:
        return min(s.start_s for a, s in spans.items() if a.stage == stage and a.microbatch == m and a.kind in kinds)

    for a, span in spans.items():
        if a.stage % job.n_stages != position or a.microbatch is None:
            continue
        interval = {
            Kind.FORWARD: lambda a=a, s=span: (s.start_s, last(a.stage, a.microbatch, *KINDS[1:])),
            Kind.RECV_F: lambda a=a, s=span: (s.start_s, first(a.stage, a.microbatch, Kind.FORWARD)),
            Kind.SEND_F: lambda a=a, s=span: (first(a.stage, a.microbatch, Kind.FORWARD), s.end_s),
            Kind.RECV_B: lambda a=a, s=span: (s.start_s, last(a.stage, a.microbatch, *KINDS[1:3])),
            Kind.SEND_B: lambda a=a, s=span: (first(a.stage, a.microbatch, *KINDS[1:3]), s.end_s),
        }.get(a.kind)
        if interval is not None:
            begin, end = interval()
            n_bytes = held[a.stage] if a.kind is Kind.FORWARD else job.activation_bytes
            total += n_bytes * (begin <= time_s < end)
    return total


@given(counts, names, st.booleans())
def test_a_device_holds_the_most_activations_of_its_program(size, name, recompute):
    """Whole, or the stage's inputs and one micro-batch remade (several where W waits)."""
    plan = plan_of(*size, recompute=recompute)
    schedule = schedules[name](*size)
    held = memory(plan, schedule).activations_bytes[:, 0]
    whole = np.array(peak_activations(schedule)) * held_bytes(plan.job, size[0])
    assert (held <= whole).all() if recompute else (held == whole).all()


@given(counts, st.sampled_from(["gpipe", "1f1b"]))
def test_recomputation_keeps_inputs_and_one_micro_batch_s_working_set(size, name):
    n_stages, n_microbatches = size
    plan = plan_of(n_stages, n_microbatches, recompute=True)
    each, boundary = held_bytes(plan.job, n_stages), 2 * SMALL.boundary_elements
    inputs = [2 * SMALL.seq_len, *[boundary] * (n_stages - 1)]
    most = peak_activations(schedules[name](n_stages, n_microbatches))
    wanted = [(most[s] - 1) * inputs[s] + each[s] for s in range(n_stages)]
    assert memory(plan, name).activations_bytes[:, 0].tolist() == wanted
    assert (
        memory(plan, name).peak_bytes <= memory(replace(plan, job=replace(plan.job, recompute=False)), name).peak_bytes
    ).all()


@pytest.mark.parametrize(("n_devices", "n_microbatches"), [(2, 4), (4, 8)])
def test_interleaved_stages_add_up_on_their_device(n_devices, n_microbatches):
    plan = plan_of(n_devices, n_microbatches, schedule="interleaved-1f1b", stages_per_device=2)
    schedule = schedules["interleaved-1f1b"](n_devices, n_microbatches, stages_per_device=2)
    each, wanted = held_bytes(plan.job, 2 * n_devices), []
    for program in schedule.programs:
        change = {Kind.FORWARD: 1, Kind.BACKWARD: -1}
        wanted.append(np.cumsum([change[a.kind] * each[a.stage] for a in program]).max())
    assert memory(plan).activations_bytes[:, 0].tolist() == wanted


@given(counts, names, st.integers(0, 99))
def test_a_timeline_is_the_sum_of_what_is_there_at_each_moment(size, name, seed):
    plan = plan_of(*size, seed=seed)
    trace = simulate(plan, name)
    report = memory(plan, trace=trace)
    rng = np.random.default_rng(seed)
    for position, name_of in enumerate(row[0] for row in report.devices):
        times, held = report.timeline(name_of)
        assert times[0] == 0
        assert (np.diff(times) > 0).all()
        assert (held >= report.static.total[position]).all()
        assert held[-1] == report.static.total[position]
        assert held.max() == report.peak_bytes[position, 0]
        for time_s in rng.uniform(0, trace.iteration_s, 4):
            beside = held[np.searchsorted(times, time_s, side="right") - 1] - report.static.total[position]
            assert beside == by_definition(plan, trace, position, 0, time_s)


@given(counts, names, st.integers(0, 99), st.booleans())
def test_no_trace_of_a_schedule_needs_less_than_its_order_says(size, name, seed, recompute):
    plan = plan_of(*size, n_replicas=2, seed=seed, recompute=recompute)
    ordered, simulated = memory(plan, name), memory(plan, trace=simulate(plan, name))
    assert (simulated.peak_bytes >= ordered.peak_bytes).all()
    assert simulated.timed
    assert not ordered.timed


@pytest.mark.parametrize(("dtype", "each"), [("fp16", 16), ("bf16", 16), ("fp32", 16), ("fp64", 32)])
def test_a_parameter_takes_the_bytes_of_its_gradient_and_adam(dtype, each):
    report = memory(plan_of(2, 2, dtype=dtype))
    assert report.static.total.sum() == each * SMALL.parameters


def test_a_tied_embedding_is_held_at_both_ends():
    untied = replace(SMALL, tied=True, layers=(*SMALL.layers[:-1], replace(SMALL.layers[-1], parameters=2 * 4)))
    alone, split = (memory(plan_of(n, 1, model=untied)).static.parameters.sum() for n in (1, 2))
    assert split - alone == 2 * untied.vocab_size * untied.d_model


def test_a_model_of_1_5_billion_parameters_has_the_published_states_and_activations():
    """Rajbhandari et al. 2020: model states of a 1.5 billion parameter GPT-2 take 24 GB (section 3.1); 1,024 tokens
    and a batch of 32 take some 60 GB of activations, and some 8 GB with checkpoints (section 3.2, rough counts)."""
    plan = plan_of(1, 1, model=MODELS["gpt2-xl"], microbatch=32)
    report = memory(plan)
    assert report.static.total[0] / GB == pytest.approx(24, rel=0.05)
    block = MODELS["gpt2-xl"].layers[1]
    assert 2 * 32 * 48 * block.held_elements / GB == pytest.approx(60 * 17 / 12, rel=0.05)  # they count 12, we 17


@pytest.mark.parametrize("name", ["central", "sharded", "ring"])
def test_gradients_of_others_wait_to_be_averaged(name):
    """Of four replicas: three whole gradients at a central server, three quarters where each averages a quarter, one
    quarter at a time round a ring."""
    plan = plan_of(1, 1, 4, synchronisation=name, model=gpt(n_layers=1, d_model=64, n_heads=1, seq_len=1, vocab_size=4))
    gradient_bytes = plan.job.stage_gradient_bytes[0]
    wanted = {"central": [3, 0, 0, 0], "sharded": [0.75] * 4, "ring": [0.25] * 4}[name]
    found = (memory(plan).messages_bytes[0] / gradient_bytes).tolist()
    assert found == pytest.approx(wanted, rel=1e-3)


def test_the_device_that_lacks_most_is_named():
    plan = plan_of(2, 4, 2, memory_bytes=[1e9, 1e9, 5000.0, 4000.0])
    report = memory(plan)
    assert not report.fits
    assert report.devices[report.worst[0]][report.worst[1]] == "device-3"
    frame = report.to_frame().set_index("device").sort_index()
    assert frame["fits"].tolist() == [True, True, False, False]
    assert (frame["over_bytes"] == (frame["peak_bytes"] - frame["limit_bytes"]).clip(lower=0)).all()
    parts = ["parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "messages_bytes"]
    assert (frame[parts].sum(axis=1) == frame["peak_bytes"]).all()
    assert report.sentence.startswith(
        f"device-3 needs {format_bytes(frame.loc['device-3', 'peak_bytes'])} and has 3.9 KiB"
    )
    assert report.sentence.endswith("over; 2 of 4 devices do not fit)")


@given(counts, st.floats(1e4, 1e5), st.booleans())
def test_as_many_micro_batches_as_there_is_room_for_do_fit(size, memory_bytes, recompute):
    n_stages, n_microbatches = size
    plan = plan_of(n_stages, n_microbatches, memory_bytes=memory_bytes, recompute=recompute)
    held = [peak_activations(schedules[name](*size)) for name in ("gpipe", "1f1b")]
    for name, most in zip(("gpipe", "1f1b"), held, strict=True):
        there_is = (np.array(most) <= activation_budget(plan)[:, 0]).all()
        assert not there_is or memory(plan, name).fits


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("n", [1, 4])
def test_each_micro_batch_holds_a_message_beside_its_activations_and_two_more_are_in_use(n, recompute):
    job = plan_of(3, 8, recompute=recompute).job
    kept, again = activation_memory(job, 3)
    hop_bytes = int(boundary_bytes(job, 3)[1])
    least = static_memory(job, 3).total[1] + again[1] + 2 * hop_bytes + n * (kept[1] + hop_bytes)
    for less, wanted in ((0, n), (1, n - 1)):
        plan = plan_of(3, 8, memory_bytes=float(least - less), recompute=recompute)
        assert activation_budget(plan)[1, 0] == wanted


BIG = replace(GPT3_XL, layers=(GPT3_XL.layers[0], *GPT3_XL.layers[1:9], GPT3_XL.layers[-1]))


@pytest.mark.parametrize("gib", [1.5, 4, 8, 20, 40])
@pytest.mark.parametrize("microbatch", [1, 8])
def test_advice_keeps_its_word(gib, microbatch):
    plan = plan_of(2, 16, 4, model=BIG, memory_bytes=[gib * GiB] * 7 + [1.5 * gib * GiB], microbatch=microbatch)
    before = memory(plan)
    line = before.advice
    assert (line == "") == before.fits == (not remedies(plan))
    assert "\n" not in line
    assert line.startswith("" if before.fits else f"{before.sentence}; ")
    for remedy in remedies(plan):
        job, schedule = remedy.after.plan.job, remedy.after.schedule
        assert job.global_batch == plan.job.global_batch
        assert not remedy.after.fits or remedy.how[-1] in line
        assert (memory(replace(plan, job=job), schedule).peak_bytes == remedy.after.peak_bytes).all()


def test_advice_in_full():
    plan = plan_of(2, 16, 4, model=BIG, memory_bytes=12.0 * GiB)
    assert memory(plan).advice == (
        "device-6 needs 19.4 GiB and has 12 GiB (7.4 GiB over; 8 of 8 devices do not fit); "
        "with recomputation it would need 5.6 GiB, with 1f1b it would need 5.5 GiB"
    )
    smaller = plan_of(2, 16, 4, model=BIG, memory_bytes=4.0 * GiB)
    assert "; nothing fits in this shape: with checkpointing block and 1f1b device-0 would" in memory(smaller).advice


@pytest.mark.parametrize("share", [0.85, 0.89, 0.91, 0.999])
def test_a_plan_that_fills_a_device_is_cautioned_from_nine_tenths_on(share):
    needs = memory(plan_of(2, 16, 4, model=BIG, microbatch=2)).peak_bytes.max()
    plan = plan_of(2, 16, 4, model=BIG, microbatch=2, memory_bytes=float(needs / share))
    report = memory(plan)
    assert report.fits
    assert report.advice == ""
    assert report.used_share.max() == pytest.approx(share)
    assert bool(report.caution) == (share > MOST_USED)
    assert memory_words(report).startswith("memory is tight: " if share > MOST_USED else "memory: ")
    assert memory_summary(report)["fullest_share"] == report.used_share.max()


def test_a_caution_in_full():
    needs = memory(plan_of(2, 16, 4, model=BIG, microbatch=2)).peak_bytes
    plan = plan_of(2, 16, 4, model=BIG, microbatch=2, memory_bytes=float(needs.max() / 0.95))
    report = memory(plan)
    position, replica = report.fullest
    assert needs[position, replica] == needs.max()
    needed, has = format_bytes(int(needs.max())), format_bytes(plan.topology.devices[0].memory_bytes)
    assert report.caution == (
        f"{report.devices[position][replica]} needs {needed} of its {has} (95.0 %). Above 90 %, the allocator may "
        "thrash: nanotron's runs took 5 to 12 times as long. Treat it as not fitting. Smaller micro-batches, "
        "recomputation or more stages need less; fragmentation=0.1 keeps plans below 90 %"
    )
    other = plan_of(2, 16, 4, model=BIG, microbatch=1, checkpointing="block")
    tight = [0.91 * peak for peak in memory(other).peak_bytes.ravel().tolist()]
    other = plan_of(2, 16, 4, model=BIG, microbatch=1, checkpointing="block", memory_bytes=[x / 0.85 for x in tight])
    assert ". More stages need less; " in memory(other).caution


def test_no_caution_remains_with_the_fragmentation_that_it_names():
    plan = plan_of(2, 16, 4, model=BIG, fragmentation=0.1)
    needs = float(memory(plan).peak_bytes.max())
    for memory_bytes in (needs / 0.9, needs / 0.9001, needs / 0.8):
        report = memory(plan_of(2, 16, 4, model=BIG, fragmentation=0.1, memory_bytes=memory_bytes))
        assert not (report.fits and report.caution)


def test_mistakes_are_one_line_each():
    plan, other = plan_of(2, 4), plan_of(2, 4, 2)
    with pytest.raises(JobError, match="holds message sizes only"):
        memory(evaluate(plan.topology, Job.from_bytes(2, 1, 1.0, 1.0), stages=[[0], [1]]))
    with pytest.raises(UnknownName, match="no device of this plan named 'device-7'"):
        memory(plan).timeline("device-7")
    with pytest.raises(TraceError, match="the trace ran on stages"):
        memory(plan, trace=simulate(other))
    with pytest.raises(ScheduleError, match="is of 3 devices and 4 micro-batches; job job wants 2 and 4"):
        memory(plan, schedules["1f1b"](3, 4))


def test_a_trace_of_other_stages_than_the_schedule_is_refused():
    plan = plan_of(2, 4)
    cut = simulate(plan, "interleaved-1f1b")
    with pytest.raises(TraceError, match="ran 2 stages per device, schedule gpipe has 1; wanted the same"):
        memory(plan, "gpipe", trace=cut)
    with pytest.raises(TraceError, match="ran 1 stage per device, schedule interleaved-1f1b has 2; wanted the same"):
        memory(plan, "interleaved-1f1b", trace=simulate(plan))


def test_numbers_of_microbatches_cost_no_memory_of_their_own():
    """A trace from a file may number them as it likes."""
    plan = plan_of(2, 4)
    trace = simulate(plan)
    far = tuple(a if a.microbatch != 3 else a._replace(microbatch=10**9) for a in trace.actions)
    renumbered = replace(trace, actions=far)
    assert (memory(plan, trace=renumbered).peak_bytes == memory(plan, trace=trace).peak_bytes).all()


def test_a_trace_tells_its_own_schedule():
    plan = plan_of(3, 6, schedule="1f1b")
    orders = schedules["gpipe"](3, 6).orders
    trace = simulate(plan, Schedule.from_orders("mine", orders))
    assert (memory(plan, trace=trace).activations_bytes == memory(plan, "gpipe").activations_bytes).all()


def test_every_iteration_of_a_trace_counts_and_has_its_own_timeline():
    plan = plan_of(2, 3, 4, synchronise_every=2, synchronisation="central")
    trace = simulate(plan)
    report, once = memory(plan, trace=trace), memory(replace(plan, job=replace(plan.job, synchronise_every=1)))
    assert trace.n_iterations == 2
    assert (report.peak_bytes >= once.peak_bytes).all()
    server = plan.device_names[0][0]
    alone, together = (report.timeline(server, iteration)[1] for iteration in (0, 1))
    assert len(together) > len(alone)
    assert max(alone.max(), together.max()) == report.peak_bytes[0, 0]


@pytest.mark.slow
def test_torch_keeps_what_a_layer_is_said_to_hold():
    """Without dropout, which real runs have not; of logits and their softmax torch keeps the softmax in fp32, where
    half precision takes the room of both."""
    torch = pytest.importorskip("torch")
    from dtfm_lab.runtime.worker.stages import Head, TransformerBlock, next_token_loss

    model = gpt(n_layers=1, d_model=256, n_heads=8, seq_len=128, vocab_size=1000)
    d, t, v = model.d_model, model.seq_len, model.vocab_size
    job = Job(model=model, n_stages=1, n_replicas=1, global_batch=1, microbatch=1, dtype="fp32", dropout=False)

    def kept(module, run) -> float:
        """Numbers in storages that autograd saves, parameters aside."""
        own = {p.untyped_storage().data_ptr() for p in module.parameters()}
        saved = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                saved[storage.data_ptr()] = storage.nbytes() / 4
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = run()
        assert result.requires_grad
        return sum(saved.values())

    x = torch.randn(1, t, d, requires_grad=True)
    block, head = TransformerBlock(model), Head(model)
    assert kept(block, lambda: block(x)) == pytest.approx(needed_elements(job, model.layers[1]), rel=0.02)
    loss = kept(head, lambda: next_token_loss(head(x), torch.zeros(1, t, dtype=torch.int64)))
    assert loss == pytest.approx(model.layers[2].held_elements - t * v, rel=0.02)


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from(["gpipe", "1f1b", "zb-h1", "interleaved-1f1b"]),
    st.sampled_from([None, "central", "ring"]),
    st.integers(0, 99),
    st.floats(0.9, 1.6),
)
def test_what_a_plan_lacks_when_played_is_what_its_trace_says(size, name, averages, seed, room):
    """Also where no simulation was needed to know it; by the order of passes alone, both say at least what lacks."""
    n_stages, n_rounds, n_replicas = size
    fields = {} if averages is None else {"synchronisation": averages}
    plan = plan_of(n_stages, n_rounds * n_stages, n_replicas, seed=seed, schedule=name, **fields)
    has = float(memory(plan).peak_bytes.max()) * room
    devices = tuple(replace(device, memory_bytes=has) for device in plan.topology.devices)
    plan = replace(plan, topology=replace(plan.topology, devices=devices))
    over = over_bytes_when_played(plan)
    if memory(plan).fits:
        assert (over == memory(plan, trace=simulate(plan)).over_bytes).all()
    else:
        assert (over == memory(plan).over_bytes).all()


HALF = 2
"""Bytes of a number in half precision."""


def gradients_of(n_replicas: int = 2, **fields: object) -> np.ndarray:
    plan = plan_of(2, 2, n_replicas, dtype="bf16", **{"sharding": "none", "synchronisation": "ring"} | fields)
    return memory(plan, "1f1b").static.gradients / np.array(plan.job.stage_parameters)


def test_buckets_are_as_large_as_all_gradients_whatever_one_holds():
    assert gradients_of() == pytest.approx([HALF, HALF])
    for bucket_bytes in (1.0, 1e9):
        assert gradients_of(gradient_buffers="buckets", bucket_bytes=bucket_bytes) == pytest.approx([2 * HALF] * 2)
    assert gradients_of(gradient_buffers="buckets", gradient_dtype="fp32") == pytest.approx(
        gradients_of(gradient_dtype="fp32") + 4
    )


def test_a_single_replica_has_no_buckets_and_split_gradients_have_no_copy():
    assert gradients_of(1, gradient_buffers="buckets") == pytest.approx([HALF, HALF])
    for kind in ("buckets", "whole"):
        plain, more = (gradients_of(sharding="zero-2", gradient_buffers=one) for one in ("none", kind))
        assert more == pytest.approx(plain)


def test_whole_gradients_stand_beside_those_that_are_added_up_in_fp32():
    assert gradients_of(gradient_dtype="fp32", gradient_buffers="whole") == pytest.approx([4 + HALF] * 2)
    assert gradients_of(gradient_buffers="whole") == pytest.approx([HALF, HALF]), "the same ones"
    assert (gradients_of(gradient_dtype="fp32") > 4).all(), "else a block's gradients wait to be added"


@pytest.mark.parametrize("kind", ["none", "buckets", "whole"])
@pytest.mark.parametrize("n_replicas", [1, 2])
def test_the_search_counts_gradients_as_the_memory_report_does(kind: str, n_replicas: int):
    plan = plan_of(2, 2, n_replicas, dtype="bf16", gradient_dtype="fp32", gradient_buffers=kind, sharding="none")
    problem = IterationProblem.of(plan.topology, plan.job)
    found = problem.held_bytes(n_replicas, np.array(plan.job.stage_parameters, dtype=float), np.zeros(2))
    beside = [problem.gathered_bytes(n_replicas)] * 2
    assert memory(plan, "1f1b").static.total == pytest.approx(found + beside)
