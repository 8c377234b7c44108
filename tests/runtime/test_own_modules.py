"""A torch module of one's own: cut, planned and trained for real, with the losses of the module as it is."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from run_helpers import left_behind

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError
from dtfm_lab.runtime.client import own_modules as client

torch = pytest.importorskip("torch", reason="modules are torch's")
import own_modules  # noqa: E402 - it imports torch

from dtfm_lab.runtime.worker.exported_module import stages_of  # noqa: E402
from dtfm_lab.runtime.worker.module_layers import described  # noqa: E402

SOURCE = Path(own_modules.__file__)
NETWORK = lab.load_topology("lecture-hall")
BATCH, SEED, N_ITERATIONS = 12, 3, 3


@cache
def job_of(name: str) -> lab.Job:
    """Looked at in this process: loading torch in another takes most of the time."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_described", lambda source, *, timed: described(source, timed=timed))
        return lab.load_job(module=f"{SOURCE}:{name}", global_batch=BATCH, dtype="fp64")


def placed(name: str, n_stages: int, n_replicas: int) -> lab.Plan:
    job = job_of(name).with_fields(n_stages=n_stages, n_replicas=n_replicas, microbatch=2)
    return lab.evaluate(NETWORK, job, stages=np.arange(n_stages * n_replicas).reshape(n_stages, n_replicas).tolist())


def losses_as_it_is(name: str, microbatch: int) -> list[float]:
    """The same batches through the whole module, with torch's AdamW and the workers' learning rate."""
    torch.manual_seed(SEED)
    module, data, *loss = getattr(own_modules, name)()
    module.double()
    if not isinstance(data, dict | tuple):
        data = torch.utils.data.default_collate(list(data))
    columns = data if isinstance(data, dict) else dict(enumerate(data))
    n = len(next(iter(columns.values())))
    optimiser = torch.optim.AdamW(module.parameters(), lr=1.0, weight_decay=0.01)
    losses = []
    for step in range(N_ITERATIONS):
        drawn = torch.randint(
            0, n - n // 10, (BATCH,), generator=torch.Generator().manual_seed(SEED * 1_000_003 + step)
        )
        found = 0.0
        for part in drawn.split(microbatch):
            batch = {k: v[part].double() if v.is_floating_point() else v[part] for k, v in columns.items()}
            if loss:
                *inputs, target = batch.values()
                value = loss[0](module(*inputs), target)
            else:
                value = module(**batch) if isinstance(data, dict) else module(*batch.values())
            (value * len(part) / BATCH).backward()
            found += float(value.detach()) * len(part) / BATCH
        losses.append(found)
        optimiser.param_groups[0]["lr"] = 2e-3 * min(1.0, (step + 1) / 5)
        optimiser.step()
        optimiser.zero_grad()
    return losses


@pytest.mark.parametrize(
    ("name", "n_stages", "n_replicas", "schedule"),
    [("perceptron", 3, 1, "1f1b"), ("language", 2, 2, "gpipe"), ("unet", 4, 1, "1f1b")],
)
def test_losses_are_those_of_the_module_as_it_is(name, n_stages, n_replicas, schedule):
    plan = placed(name, n_stages, n_replicas)
    run = lab.start(plan, schedule, iterations=N_ITERATIONS, seed=SEED)
    trace = run.wait()
    np.testing.assert_allclose(trace.context.losses, losses_as_it_is(name, 2), rtol=1e-9)
    assert lab.simulate(plan, schedule, like=trace).iteration_s > 0
    assert left_behind(run.pid) == []


def test_layers_have_the_modules_own_numbers():
    model = job_of("perceptron").model
    assert [layer.parameters for layer in model.layers] == [8 * 8 + 8] * 5
    assert [layer.forward_flop for layer in model.layers] == [2 * 8 * 8] * 5
    assert model.boundary_elements == 8
    whole = job_of("language").model
    assert whole.tied
    assert whole.vocab_size * whole.d_model == 32 * 16, "the embedding, which both ends send"
    assert whole.parameters == sum(p.numel() for p in own_modules.Language().parameters())


def test_blocks_that_are_timed_share_the_flop_as_they_share_the_seconds():
    """Torch counts the same products in each of these blocks; the last one has 200 sines beside them."""
    source = f"{SOURCE}:lopsided"
    counted, timed = ([layer["forward_flop"] for layer in described(source, timed=t)["layers"]] for t in (False, True))
    assert counted == [2 * 8 * 8] * 3
    assert sum(timed) == pytest.approx(sum(counted))
    assert timed[2] > 2 * max(timed[:2])
    assert {**described(source, timed=True), "layers": 0} == {**described(source), "layers": 0}


def test_seconds_are_of_its_flop_and_its_batch_counts_samples():
    """The width of a transformer, from which the share of an A100's peak is told, is nothing that a module has."""
    job = job_of("language").with_fields(dtype="fp16", n_stages=1, n_replicas=1, microbatch=2)
    plan = lab.evaluate(lab.Topology.from_matrices([[0.0]], [[1.0]], gpu="A100"), job, stages=[[0]])
    assert lab.simulate(plan).iteration_s == pytest.approx(job.flop / (0.4 * 312e12))
    assert (job.tokens, job.model.counted) == (BATCH, "samples")


def test_what_crosses_is_what_is_sent_priced_and_held():
    """Of the U-Net: before its bottom both skips and what comes up from below, behind it one skip less."""
    plan, c = placed("unet", 4, 1), 4
    sizes = [layer.output_elements for layer in job_of("unet").model.layers]
    assert max(sizes[:-1]) == job_of("unet").model.boundary_elements == c * 8 * 8 + 2 * c * 4 * 4 + 4 * c * 2 * 2
    assert sizes[0] == c * 8 * 8, "the first skip, from which the way down begins, too"
    of = plan.job.boundary_elements(4)
    assert of == (0, *(2 * layers[-1].output_elements for layers in plan.job.stage_layers[:-1]), 0)
    stages = stages_of(plan.job, 4, range(4), SEED, torch.float64)
    batch = [one[None].repeat(2, 1, 1, 1).double() for one in own_modules.unet()[1][0].values()]
    sent = torch.empty(0)
    for stage in range(3):
        sent = stages[stage](sent, batch)
        assert sent.numel() == of[stage + 1]
    devices, found = plan.placement.devices[:, 0], lab.simulate(plan).to_frame()
    for kind, to in (("send_f", 1), ("send_b", -1)):
        rows = found[found.kind == kind]
        here, there = devices[rows.stage], devices[rows.stage + to]
        moved = (rows.end_s - rows.start_s) * NETWORK.bandwidth_bytes_per_s[here, there]
        np.testing.assert_allclose(moved, [8 * of[stage + (to > 0)] for stage in rows.stage])


def test_a_module_itself_is_taken_with_an_example():
    x = own_modules.rows(32, 8)
    job = lab.load_job(module=own_modules.Perceptron(), example=(x, x), loss=torch.nn.functional.mse_loss)
    assert (job.name, job.model.n_blocks, job.dtype) == ("perceptron", 5, "fp32")


def test_a_plan_of_a_module_is_saved_and_read(tmp_path):
    plan = placed("perceptron", 2, 1)
    lab.save(plan, tmp_path / "plan.json")
    assert lab.load_plan(tmp_path / "plan.json").job == plan.job


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("drops_out", "draws at random, differently on every worker; wanted a dropout of 0, or module.eval()"),
        ("lonely", "it has no parts that compute one after the other; wanted submodules to cut between"),
        ("no_loss", "what it returns is not a loss; wanted one number, or a loss function"),
        ("alone", "it makes Perceptron; wanted (module, data) or (module, data, loss)"),
        ("breaks", "it cannot be built: the disk is full"),
        ("branches", "torch.export refuses it: "),
        ("frozen", "own.layers.0.weight is not trained; wanted requires_grad of all parameters"),
        ("shared", "is used by several blocks; wanted parameters of one block each"),
        ("missing", "own_modules.py has no missing; wanted a function of that name"),
    ],
)
def test_a_module_that_cannot_be_cut_is_refused_in_one_line(name, says):
    with pytest.raises(JobError, match=re.escape(says)):
        described(f"{SOURCE}:{name}")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ends", "its code ended the process in which it was looked at, with status 0; wanted code that returns"),
        ("exits", "it cannot be built: it exits with enough of this"),
        ("crashes", "with SIGABRT"),
        ("forges", "what its process says of it: layers[0].output_elements: field required"),
        ("lists", "holds a list; wanted a mapping"),
        ("leaves_a_process", "it cannot be built: the disk is full"),
    ],
)
def test_code_that_ends_its_process_or_answers_in_its_place_is_refused_in_one_line(name, says):
    with pytest.raises(JobError, match=re.escape(says)) as refused:
        client.read_module(f"{SOURCE}:{name}")
    assert str(refused.value).startswith(f"module {SOURCE}:{name}: ")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
def test_a_recurrent_layer_without_dropout_draws_nothing():
    layers = described(f"{SOURCE}:recurrent")["layers"]
    assert [layer["forward_flop"] for layer in layers] == [0, 6 * 2 * 2 * 8 * 3 * 8, 6 * 2 * 8 * 32]


def test_what_is_no_module_is_refused():
    for given, says in [
        ({"module": "own_modules.py"}, "wanted file.py:function, or a torch module and an example"),
        ({"module": f"{SOURCE}:"}, "wanted file.py:function, or a torch module and an example"),
        ({"module": "no_such.py:build"}, "no file no_such.py; wanted file.py:function"),
        ({"module": torch.nn.Linear(1, 1)}, "example is None; wanted a batch or a dataset"),
        ({"example": (1,)}, "example or loss without a module; wanted both, or none"),
        ({"name_or_path": "tiny", "timed": True}, "timed without a module; wanted both, or none"),
        ({}, "neither a job nor a module is given; wanted one"),
    ]:
        with pytest.raises(JobError, match=says):
            lab.load_job(**given)


def test_a_pickle_of_another_folder_is_not_read(tmp_path):
    (tmp_path / "evil.pickle").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(JobError, match=r"it lies outside .*; wanted one that lab\.load_job has written there"):
        described(str(tmp_path / "evil.pickle"))


def test_what_is_done_to_the_labs_own_models_only_is_refused():
    plan = placed("perceptron", 2, 1)
    with pytest.raises(JobError, match="own module, and schedule zb-h1 splits backwards; wanted another one"):
        lab.run(plan, "zb-h1")
    with pytest.raises(JobError, match="and sample_bytes is 9; wanted 0"):
        lab.run(plan, sample_bytes=9)
