"""Coded messages are as large as the simulator charges, and lose no more than rounding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.job import COMPRESSIONS, INT8_BLOCK, compressed_bytes
from dtfm_lab.runtime.worker.codec import Codec

DTYPES = {"fp32": torch.float32, "fp64": torch.float64}
how = st.sampled_from(COMPRESSIONS)
dtype = st.sampled_from(sorted(DTYPES))


def numbers(n: int, seed: int, of: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 ** float(torch.randint(-6, 3, (1,), generator=generator))
    return torch.randn(n, generator=generator, dtype=DTYPES[of]) * scale


@given(how, dtype, st.integers(2, 1500), st.integers(0, 99))
@settings(max_examples=25)
def test_a_message_is_as_large_as_the_simulator_says(how, dtype, n, seed):
    codec = Codec(how, DTYPES[dtype])
    raw = codec.encode(numbers(n, seed, dtype))
    assert (raw.dtype, raw.numel()) == (torch.uint8, codec.n_bytes(n))
    assert raw.numel() == compressed_bytes(n, dtype, how)


@given(dtype, st.integers(0, 1500), st.integers(0, 99))
@settings(max_examples=25)
def test_rounding_is_to_the_nearest_step(dtype, n, seed):
    sent = numbers(n, seed, dtype)
    assert torch.equal(Codec("none", DTYPES[dtype]).decode(Codec("none", DTYPES[dtype]).encode(sent)), sent)
    codec = Codec("int8", DTYPES[dtype])
    came = codec.decode(codec.encode(sent))
    assert (came.dtype, came.shape) == (sent.dtype, sent.shape)
    for start in range(0, n, INT8_BLOCK):
        block = slice(start, start + INT8_BLOCK)
        step = sent[block].abs().max() / 127
        assert (came[block] - sent[block]).abs().max() <= 0.5001 * step


@given(dtype, st.integers(1, 600), st.integers(0, 99))
@settings(max_examples=25)
def test_half_precision_is_half_precision(dtype, n, seed):
    sent = numbers(n, seed, dtype)
    codec = Codec("fp16", DTYPES[dtype])
    assert torch.equal(codec.decode(codec.encode(sent)), sent.half().to(sent.dtype))


def test_what_is_too_large_for_half_precision_becomes_its_largest_number_and_zeros_stay_zeros():
    codec = Codec("fp16", torch.float32)
    assert codec.decode(codec.encode(torch.tensor([1e9, -1e9, 0.0]))).tolist() == [65504.0, -65504.0, 0.0]
    codec = Codec("int8", torch.float32)
    assert not codec.decode(codec.encode(torch.zeros(300))).any()


@given(how, st.integers(0, 5), st.integers(0, 700), st.integers(0, 99))
@settings(max_examples=25)
def test_parts_of_whole_blocks_laid_end_to_end_are_the_coded_whole(how, n_blocks, n_after, seed):
    codec, sent = Codec(how, torch.float32), numbers(n_blocks * INT8_BLOCK + n_after, seed, "fp32")
    parts = sent.split([n_blocks * INT8_BLOCK, n_after])
    assert torch.equal(torch.cat([codec.encode(part) for part in parts]), codec.encode(sent))


@pytest.mark.parametrize(("how", "loses"), [("none", False), ("fp16", True), ("int8", True)])
def test_a_codec_knows_whether_it_loses_anything(how, loses):
    assert Codec(how, torch.float32).is_lossy == loses
