"""A trained model writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_checkpoint_tensors import TIED, Trained, job_of, sealed

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.runtime.protocol.checkpoint_folders import folder_for
from dtfm_lab.runtime.worker.batches import generate, load_model

LOOP = b"one, two, "


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint of a model that has learnt a line by heart, cut into two stages."""
    torch.set_num_threads(1)
    parent = tmp_path_factory.mktemp("taught")
    text = parent / "loop.txt"
    text.write_bytes(LOOP * 50)
    trained = Trained(job_of(TIED), 2, text=str(text))
    trained.train(150)
    sealed(folder_for(parent, 150), trained, job_of(TIED), 150)
    return parent


def test_what_was_learnt_by_heart_is_written(taught: Path) -> None:
    model, job = load_model(taught)
    assert generate(model, job.modelled().seq_len, "one, two", 24, temperature=0) == ", one, two, one, two, on"


def test_the_seed_decides_and_nothing_else(taught: Path) -> None:
    model, job = load_model(taught)
    torch.manual_seed(1)
    assert generate(model, 8, "t", 20, temperature=1e-310) == generate(model, 8, "t", 20, temperature=0)
    before = torch.get_rng_state()
    hot = [generate(model, job.modelled().seq_len, "t", 40, seed=seed, temperature=3.0) for seed in (1, 1, 2)]
    assert hot[0] == hot[1] != hot[2]
    assert torch.equal(before, torch.get_rng_state())


def test_any_prompt_is_gone_on_from_and_broken_bytes_are_shown_as_such(taught: Path) -> None:
    model, job = load_model(taught)
    seq_len = job.modelled().seq_len
    for prompt in ("", "ö" * 100, "\ud800", "one"):
        written = generate(model, seq_len, prompt, 30, seed=3, temperature=1e4)
        assert 0 < len(written) <= 30
    assert "\N{REPLACEMENT CHARACTER}" in generate(model, seq_len, "", 200, temperature=1e4)


def test_a_model_whose_training_diverged_is_refused(taught: Path) -> None:
    model, _ = load_model(taught)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(LabError, match="its training has diverged"):
        generate(model, 8, "t", 1)


def test_a_checkpoint_that_is_away_or_damaged_is_refused_in_one_line(taught: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such folder"):
        load_model(tmp_path / "away")
    (whole,) = taught.glob("iteration-*")
    copy = tmp_path / whole.name
    copy.mkdir()
    for file in whole.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    size = (copy / "stage-1.safetensors").stat().st_size
    (copy / "stage-1.safetensors").write_bytes(b"\0" * size)
    with pytest.raises(FileError, match=r"^[^\n]*stage-1.safetensors is damaged: its SHA-256 [^\n]*$"):
        load_model(copy)
