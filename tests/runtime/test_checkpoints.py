"""Which folders are checkpoints, what they are of, and which may go; no torch in here."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.runtime.protocol.checkpoint_folders import (
    META,
    Checkpoint,
    check_free,
    describe,
    folder_for,
    latest,
    prepare,
    prune,
    resumable,
    seal,
)
from dtfm_lab.runtime.protocol.corpus import Corpus

JOB = lab.load_job("tiny")
CORPUS = Corpus.of(None, 64)


def run_of(job: Job, seed: int = 7, text: Path | None = None) -> Any:
    """What a run's specification says that a checkpoint is compared with."""
    corpus = CORPUS if text is None else Corpus.of(text, 64)
    return SimpleNamespace(trained=job, seed=seed, learning_rate=2e-3, corpus=corpus)


def left(parent: Path, iteration: int, **fields: object) -> Checkpoint:
    """A sealed checkpoint of two files that hold anything."""
    folder = folder_for(parent, iteration)
    prepare(folder)
    for stage in range(2):
        (folder / f"stage-{stage}.safetensors").write_bytes(b"x" * (stage + 1))
    values = {
        "folder": folder,
        "iteration": iteration,
        "job": JOB,
        "seed": 7,
        "learning_rate": 2e-3,
        "text": CORPUS.name,
        "text_digest": CORPUS.digest,
        "losses": (5.5, 5.25, 1 / 3),
        "versions": {"torch": "2"},
    }
    checkpoint = Checkpoint(**values | fields)
    seal(checkpoint)
    return checkpoint


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    written = left(tmp_path, 3)
    read = describe(written.folder)
    assert read == replace(written, files={"stage-0.safetensors": 1, "stage-1.safetensors": 2})
    assert read.sha256["stage-1.safetensors"] == hashlib.sha256(b"xx").hexdigest()
    assert read.folder.name == "iteration-000003"


def test_losses_that_are_no_numbers_any_more_are_kept(tmp_path: Path) -> None:
    loss = describe(left(tmp_path, 1, losses=(float("nan"), float("inf"))).folder).losses
    assert str(loss) == "(nan, inf)"


def test_a_parent_folder_stands_for_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    for iteration in (9, 10, 1_000_000, 99):
        left(tmp_path, iteration)
    assert describe(tmp_path).iteration == 1_000_000
    (folder_for(tmp_path, 1_000_000) / META).unlink()
    assert describe(tmp_path).iteration == 99
    (folder_for(tmp_path, 99) / "stage-1.safetensors").write_bytes(b"")
    assert describe(tmp_path).iteration == 10
    (folder_for(tmp_path, 10) / META).write_text("{")
    found = latest(tmp_path)
    assert found is not None
    assert found.iteration == 9


def test_one_that_is_written_again_is_no_checkpoint_meanwhile(tmp_path: Path) -> None:
    folder = left(tmp_path, 3).folder
    prepare(folder)
    assert latest(tmp_path) is None
    assert list(folder.iterdir()) == []


def test_the_newest_two_of_a_run_stay_and_nothing_of_others_goes(tmp_path: Path) -> None:
    left(tmp_path, 1)  # of an earlier run
    written = [left(tmp_path, iteration).folder for iteration in (3, 2, 4, 5)]
    (written[0] / "notes.txt").write_text("mine")
    assert prune(written) == written[2:]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        folder_for(tmp_path, iteration).name for iteration in (1, 3, 4, 5)
    ]
    assert [path.name for path in written[0].iterdir()] == ["notes.txt"]
    assert prune(written[2:]) == written[2:]


def test_what_is_no_checkpoint_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such folder"):
        describe(tmp_path / "away")
    with pytest.raises(FileError, match=r"holds no whole checkpoint; wanted a checkpoint.json"):
        describe(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="is a file"):
        describe(tmp_path / "file")
    checkpoint = left(tmp_path, 3)
    meta = checkpoint.folder / META
    text = meta.read_text()
    for broken, message in (
        (text.replace('"dtfm_checkpoint": 1', '"dtfm_checkpoint": 2'), "is version 2; this release reads version 1"),
        (text.replace('"seed": 7', '"seed": "x"'), "seed: .*integer.*found 'x'"),
        (text.replace('"microbatch": 2', '"microbatch": 0'), "microbatch is 0"),
        (text.replace("stage-1.safetensors", "stage-3.safetensors"), "stage-3.safetensors is not there; wanted 2"),
        (text.replace("stage-1.safetensors", "../x"), r"\.\./x is not there"),
        ("[]", "holds a list"),
    ):
        meta.write_text(broken)
        with pytest.raises(FileError, match=message):
            describe(checkpoint.folder)


def test_a_run_does_not_leave_checkpoints_among_later_ones_of_another(tmp_path: Path) -> None:
    check_free(tmp_path / "new", 0)
    check_free(tmp_path, 0)
    left(tmp_path, 3)
    check_free(tmp_path, 3)
    with pytest.raises(FileError, match=r"holds iteration-000003 of another run.*wanted another folder, or to resume"):
        check_free(tmp_path, 0)


def test_the_same_run_goes_on_without_a_word_under_any_cut(tmp_path: Path) -> None:
    checkpoint = left(tmp_path, 3)
    assert resumable(checkpoint, run_of(JOB)) == ()
    assert resumable(checkpoint, run_of(lab.load_job("tiny", n_stages=2, n_replicas=4, schedule="1f1b"))) == ()


def test_another_model_is_refused_and_anything_else_said(tmp_path: Path) -> None:
    checkpoint = left(tmp_path, 3)
    with pytest.raises(LabError, match=r"is of model tiny \(8 blocks, d_model 128.*wanted that of this run, small"):
        resumable(checkpoint, run_of(lab.load_job("small")))
    own = tmp_path / "own.txt"
    own.write_bytes(b"ab" * 100)
    job = lab.load_job("tiny", dtype="fp64", n_replicas=1)
    notes = resumable(checkpoint, run_of(job, 8, own))
    found = [note.partition(" was trained with ")[2] for note in notes]
    assert found == [f"text text.txt, now {own}", "seed 7, now 8", "dtype fp32, now fp64"]
    local = replace(checkpoint, job=lab.load_job("tiny", synchronise_every=2))
    assert len(resumable(local, run_of(lab.load_job("tiny", synchronise_every=2, n_replicas=1)))) == 1
