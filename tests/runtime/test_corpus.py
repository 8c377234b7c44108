"""What is trained on, and what never is."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import FileError
from dtfm_lab.runtime.protocol.corpus import SHIPPED, Corpus
from dtfm_lab.runtime.worker.batches import TextBatches

SEQ = 8


def own_text(folder: Path, content: bytes) -> str:
    path = folder / f"own-{len(content)}.bin"
    path.write_bytes(content)
    return str(path)


@given(st.integers(18, 2000))
@settings(max_examples=25)
def test_the_last_tenth_and_at_least_one_sequence_is_held_out(size: int) -> None:
    corpus = Corpus(SHIPPED, SEQ)
    corpus.__dict__["_bytes"] = np.arange(size) % 256
    assert len(corpus.held_out) == max(size // 10, SEQ + 1)
    assert len(corpus.training) >= SEQ + 1
    assert len(corpus.training) + len(corpus.held_out) == size


def test_targets_are_the_next_bytes_and_batches_are_the_seeds() -> None:
    batches = TextBatches(None, SEQ, 4, seed=3)
    inputs, targets = batches.batch(5)
    assert inputs.shape == targets.shape == (4, SEQ)
    assert inputs.dtype == torch.int64
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(inputs, TextBatches(None, SEQ, 4, seed=3).batch(5)[0])
    assert not torch.equal(inputs, batches.batch(6)[0])
    assert not torch.equal(inputs, TextBatches(None, SEQ, 4, seed=4).batch(5)[0])


def test_replicas_share_a_batch_without_rest_or_repetition() -> None:
    batches = TextBatches(None, SEQ, 12, seed=0)
    for whole, share in (
        (batches.batch(2), lambda r: batches.share(2, r, (2, 2, 2))),
        (batches.batch(2), lambda r: batches.share(2, r, (1, 3, 2))),
        (batches.held_out_batch(), lambda r: batches.held_out(r, (4, 1, 1))),
    ):
        pairs = [pair for replica in range(3) for pair in share(replica)]
        assert all(
            torch.equal(torch.cat(parts), part) for part, parts in zip(whole, zip(*pairs, strict=True), strict=True)
        )


def test_held_out_text_is_the_same_for_every_seed_and_spread_over_all_of_it() -> None:
    one, other = (TextBatches(None, SEQ, 32, seed).held_out_batch() for seed in (0, 1))
    assert torch.equal(one[0], other[0])
    corpus = Corpus.of(None, SEQ)
    starts = corpus.held_out_starts(32)
    assert starts[0] == 0
    assert starts[-1] == len(corpus.held_out) - SEQ - 1
    assert np.ptp(np.diff(starts)) <= 1


@given(st.binary(min_size=60, max_size=400), st.lists(st.floats(0.01, 1), min_size=256, max_size=256))
@settings(max_examples=25)
def test_no_fixed_distribution_foretells_the_held_out_bytes_better_than_the_entropy(
    content: bytes, weights: list[float]
) -> None:
    corpus = Corpus(SHIPPED, SEQ)
    corpus.__dict__["_bytes"] = np.frombuffer(content, dtype=np.uint8)
    entropy = corpus.unigram_entropy(6)
    targets = corpus.windows(corpus.held_out, corpus.held_out_starts(6))[:, 1:]
    fixed = np.array(weights) / sum(weights)
    assert -1e-12 <= entropy <= -np.log(fixed[targets]).mean() + 1e-9


def test_evenly_frequent_bytes_have_the_entropy_of_a_fair_die(tmp_path: Path) -> None:
    corpus = Corpus.of(own_text(tmp_path, b"abcd" * 100), SEQ)
    assert corpus.unigram_entropy(4) == pytest.approx(np.log(4))
    assert TextBatches(str(corpus.path), SEQ, 4, seed=0).unigram_entropy == pytest.approx(np.log(4))


def test_a_text_larger_than_memory_would_like_is_mapped_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(64 * 2**30)  # of holes: takes no room
    batches = TextBatches(str(path), SEQ, 4, seed=0)
    assert batches.batch(0)[0].sum() == batches.held_out_batch()[0].sum() == 0


def test_a_text_that_cannot_be_trained_on_is_refused_in_one_line(tmp_path: Path) -> None:
    Corpus.of(own_text(tmp_path, b"x" * 18), SEQ)
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "away.txt", "no such file"),
        (tmp_path, "is a directory; wanted a file"),
        (tmp_path / "pipe", "is not an ordinary file"),
        (own_text(tmp_path, b"x" * 17), "has 17 bytes; wanted at least 18"),
        (own_text(tmp_path, b""), "has 0 bytes; wanted at least 18"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
        ("nul\0byte", "cannot be read"),
    ):
        with pytest.raises(FileError, match=message):
            Corpus.of(path, SEQ)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_text_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_bytes(b"x" * 100)
    path.chmod(0)
    with pytest.raises(FileError, match="Permission denied"):
        Corpus.of(path, SEQ)
