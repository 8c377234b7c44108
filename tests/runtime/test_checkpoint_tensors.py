"""Parameters and optimiser states survive a checkpoint to the bit, under the same cut or another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.runtime.protocol.checkpoint_folders import META, TENSORS, Checkpoint, describe, folder_for, prepare, seal
from dtfm_lab.runtime.worker.batches import TextBatches, load_model
from dtfm_lab.runtime.worker.checkpoint_tensors import read, read_parameters, write
from dtfm_lab.runtime.worker.stages import build_stages, next_token_loss
from dtfm_lab.runtime.worker.training_state import WARM_UP, TrainingState, learning_rate_at

MODEL = gpt(name="test", n_layers=4, d_model=16, n_heads=2, seq_len=8, vocab_size=256, tied=False)
TIED = gpt(name="tied", n_layers=4, d_model=16, n_heads=2, seq_len=8, vocab_size=256, tied=True)
RATE = 3e-3


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # as the workers do; more of them fight over a crowded machine's cores


def job_of(model: object = MODEL, dtype: str = "fp64") -> Job:
    return lab.load_job("tiny", model=model, n_stages=1, n_replicas=1, global_batch=4, microbatch=2, dtype=dtype)


class Trained(TrainingState):
    """Stages and their training state, as a worker has them; all stages in one process here."""

    def __init__(
        self, job: Job, n_stages: int = 1, seed: int = 0, *, locally: bool = False, text: str | None = None
    ) -> None:
        self.modules = build_stages(job, n_stages, range(n_stages), seed)
        super().__init__(self.modules.values(), local_updates=locally)
        self._batches = TextBatches(text, job.modelled().seq_len, job.global_batch, seed)

    def train(self, iterations: int) -> list[float]:
        losses = []
        for _ in range(iterations):
            x, targets = self._batches.batch(self.steps)
            for module in self.modules.values():
                x = module(x)
            loss = next_token_loss(x, targets)
            loss.backward()
            self.step(learning_rate_at(RATE, self.steps))
            losses.append(loss.item())
        return losses

    def save(self, folder: Path, replica: int = 0) -> None:
        write(folder, self.modules, self, replica)

    def load(self, folder: Path, replica: int = 0) -> None:
        read(folder, self.modules, self, replica)


def sealed(folder: Path, trained: Trained, job: Job, iteration: int = 1) -> None:
    """The folder becomes a checkpoint of what was trained, as a run writes it."""
    prepare(folder)
    trained.save(folder)
    seal(
        Checkpoint(folder=folder, iteration=iteration, job=job, seed=0, learning_rate=RATE, text="loop", text_digest="")
    )


def equal(one: Trained, other: Trained) -> bool:
    return torch.equal(one.to_bytes(), other.to_bytes())


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("model", [MODEL, TIED], ids=["untied", "tied"])
def test_three_iterations_and_three_more_equal_six_to_the_bit(tmp_path: Path, model: object, dtype: str) -> None:
    job = job_of(model, dtype)
    whole = Trained(job, 2)
    losses = whole.train(6)
    half = Trained(job, 2)
    first = half.train(3)
    half.save(tmp_path)
    resumed = Trained(job, 2)
    resumed.load(tmp_path)
    assert first + resumed.train(3) == losses
    assert equal(resumed, whole)


@pytest.mark.parametrize("model", [MODEL, TIED], ids=["untied", "tied"])
@pytest.mark.parametrize(("written_as", "read_as"), [(1, 3), (2, 4), (4, 1)])
def test_a_checkpoint_is_read_under_another_cut(tmp_path: Path, model: object, written_as: int, read_as: int) -> None:
    before, after = Trained(job_of(model), written_as), Trained(job_of(model), read_as, seed=1)
    before.train(2)
    before.save(tmp_path)
    after.load(tmp_path)
    assert equal(before, after)
    assert len(list(tmp_path.iterdir())) == written_as


def test_a_device_reads_its_own_layers_only_and_the_far_end_of_a_tied_embedding_too(tmp_path: Path) -> None:
    whole = Trained(job_of(TIED))
    whole.train(2)
    whole.save(tmp_path)
    job = lab.load_job("tiny", model=TIED, n_stages=2, n_replicas=1, global_batch=4, microbatch=2, dtype="fp64")
    head_only = build_stages(job, 2, [1], seed=5)
    read_parameters(tmp_path, head_only[1])
    embedding = dict(whole.modules[0].named_parameters())["0.token.weight"]
    assert torch.equal(head_only[1][-1].logits.weight, embedding)


def test_after_local_updates_each_replica_finds_its_own_and_what_was_in_common(tmp_path: Path) -> None:
    replicas = [Trained(job_of(), seed=seed, locally=True) for seed in range(2)]
    for replica, trained in enumerate(replicas):
        trained.train(1)
        trained.save(tmp_path, replica)
    for replica in (0, 1, 2, 3):
        read_back = Trained(job_of(), seed=9, locally=True)
        read_back.load(tmp_path, replica)
        assert equal(read_back, replicas[replica % 2]), "one that was not there begins as one that was"
    together = [Trained(job_of(), seed=9) for _ in range(2)]
    for replica, trained in enumerate(together):
        trained.load(tmp_path, replica)
    assert equal(*together), "replicas that average in every iteration begin alike"


def test_local_updates_begin_from_a_checkpoint_of_equal_replicas_with_all_in_common(tmp_path: Path) -> None:
    before, after = Trained(job_of()), Trained(job_of(), seed=1, locally=True)
    before.train(1)
    before.save(tmp_path)
    after.load(tmp_path, replica=1)
    assert torch.equal(after.parameters, before.parameters)
    assert torch.equal(after.synchronised, before.parameters)


def test_numbers_of_another_precision_are_converted(tmp_path: Path) -> None:
    before, after = Trained(job_of(dtype="fp32")), Trained(job_of(dtype="fp64"), seed=1)
    before.save(tmp_path)
    after.load(tmp_path)
    assert torch.equal(after.parameters, before.parameters.double())


def test_what_is_no_checkpoint_of_this_model_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no tensors"):
        Trained(job_of()).load(tmp_path)
    Trained(job_of()).save(tmp_path)
    wider = gpt(name="wider", n_layers=4, d_model=32, n_heads=2, seq_len=8, vocab_size=256, tied=False)
    with pytest.raises(FileError, match=r"0.position is of shape \[8, 16\]; wanted \[8, 32\]"):
        Trained(job_of(wider)).load(tmp_path)
    deeper = gpt(name="deeper", n_layers=5, d_model=16, n_heads=2, seq_len=8, vocab_size=256, tied=False)
    with pytest.raises(FileError, match=r"holds no tensor 5.attention_norm.weight"):
        Trained(job_of(deeper)).load(tmp_path)
    file = tmp_path / "stage-0.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(FileError, match=r"stage-0.safetensors cannot be read"):
        Trained(job_of()).load(tmp_path)


@given(seed=st.integers(0, 2**32), which=st.sampled_from([0, 1, 2]), tail=st.booleans())
@settings(max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_checkpoint_is_read_or_refused_in_one_line(tmp_path: Path, seed: int, which: int, tail: bool) -> None:
    """Some bytes of a file's beginning, where its header is, are others, more or fewer; or of its end."""
    folder = folder_for(tmp_path, 1)
    if not folder.exists():
        sealed(folder, Trained(job_of(), 2), job_of())
    file = [folder / META, *sorted(folder.glob(TENSORS))][which]
    whole, random = file.read_bytes(), np.random.default_rng(seed)
    damaged = bytearray(whole)
    for _ in range(int(random.integers(1, 4))):
        at = int(random.integers(len(whole) if tail else min(len(whole), 3000)))
        byte = int(random.choice([random.integers(256), ord("9"), ord("0"), ord("-"), ord("6")]))
        n_instead = int(random.choice([1, 1, 1, 0, 2]))
        damaged[at : at + 1] = bytes([byte]) * n_instead
    description = (folder / META).read_bytes()
    try:
        file.write_bytes(damaged)
        if which and len(damaged) != len(whole):  # the description agrees, so that the file itself is read
            (folder / META).write_bytes(description.replace(b"%d" % len(whole), b"%d" % len(damaged)))
        for refusal in refusals_of(folder):
            assert not refusal or str(folder) in refusal
    finally:
        (folder / META).write_bytes(description)
        file.write_bytes(whole)


def refusals_of(folder: Path) -> list[str]:
    """What a run that goes on from it says, and one that lets its model write; empty where it is read."""
    found = []
    for use in (lambda: Trained(job_of(), 2).load(describe(folder).folder), lambda: load_model(folder)):
        try:
            use()
            found.append("")
        except FileError as refusal:
            found.append(str(refusal))
    return found


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("n_heads", 3, "has other layers than the GPT that workers build"),
        ("vocab_size", 9 * 10**8, "has other layers than the GPT that workers build"),
        ("files", {"stage-0.safetensors": 8}, "its files have 8 bytes; wanted 171776 or more for model test"),
    ],
)
def test_a_damaged_size_is_refused_before_it_takes_memory(tmp_path: Path, key: str, value: Any, why: str) -> None:
    sealed(folder := folder_for(tmp_path, 1), Trained(job_of()), job_of())
    data = json.loads((folder / META).read_text())
    del data["sha256"]  # as earlier versions wrote it
    (data if key == "files" else data["job"]["model"])[key] = value
    if key == "files":
        (folder / "stage-0.safetensors").write_bytes(b"\0" * 8)
    (folder / META).write_text(json.dumps(data))
    with pytest.raises(FileError, match=why):
        load_model(folder)


@pytest.mark.parametrize(("steps", "name"), [("9" * 30, "a"), ("-1", "a"), ("1", "0.position.0-0")])
def test_a_header_that_no_writer_makes_is_refused(tmp_path: Path, steps: str, name: str) -> None:
    save_file({name: torch.zeros(1)}, tmp_path / "stage-0.safetensors", {"steps": steps})
    with pytest.raises(FileError):
        Trained(job_of()).load(tmp_path)


def test_a_precision_that_workers_do_not_compute_in_is_refused(tmp_path: Path) -> None:
    sealed(folder := folder_for(tmp_path, 1), Trained(job_of()), lab.load_job("tiny", dtype="bf16"))
    with pytest.raises(FileError, match="was trained in bf16, which workers do not; wanted fp32 or fp64"):
        describe(folder)


def test_stages_of_different_iterations_make_no_checkpoint(tmp_path: Path) -> None:
    trained = Trained(job_of(), 2)
    trained.save(tmp_path)
    older = (tmp_path / "stage-1.safetensors").read_bytes()
    trained.train(1)
    trained.save(tmp_path)
    (tmp_path / "stage-1.safetensors").write_bytes(older)
    with pytest.raises(FileError, match="of several iterations"):
        trained.load(tmp_path)


def test_the_learning_rate_grows_to_the_whole_and_stays() -> None:
    rates = [learning_rate_at(RATE, i) for i in range(3 * WARM_UP)]
    assert rates[:WARM_UP] == pytest.approx([RATE * (i + 1) / WARM_UP for i in range(WARM_UP)])
    assert set(rates[WARM_UP - 1 :]) == {RATE}
