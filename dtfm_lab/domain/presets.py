"""Jobs known by name."""

from __future__ import annotations

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.model import gpt
from dtfm_lab.domain.units import GB, GiB

GPT3_XL = gpt(name="gpt3-xl", n_layers=24, d_model=2048, n_heads=16, seq_len=2048, vocab_size=50257)
"""1.3 billion parameters, DT-FM section 4.1; vocabulary of GPT-2."""

TINY = gpt(name="tiny", n_layers=8, d_model=128, n_heads=4, seq_len=64, vocab_size=256, tied=False)
"""1.7 million parameters on bytes of text: trains on a laptop's CPU while one watches."""

DTFM_GRADIENT_BYTES = 1.3 * 4 * 3 / 24 * GB
"""1.3 billion parameters of 4 bytes, 3 of 24 layers a stage, in the public code's "GB"."""

DTFM_HOP_BYTES = 2024 * 2048 * 2 * (1.25e5 / 2048) / GiB * GB
"""A replica's activations. The public code writes 2024 where 2048 is meant and uses a GiB figure as GB;
kept as it is, because published costs rest on it."""

JOBS: dict[str, Job] = {
    "dtfm-gpt3-xl": Job(
        name="dtfm-gpt3-xl",
        model=GPT3_XL,
        n_stages=8,
        n_replicas=8,
        global_batch=512,
        microbatch=1,
        given_gradient_bytes=DTFM_GRADIENT_BYTES,
        given_hop_bytes=DTFM_HOP_BYTES,
    ),
    "gpt3-xl": Job(name="gpt3-xl", model=GPT3_XL, n_stages=8, n_replicas=8, global_batch=1024, microbatch=1),
    "tiny": Job(name="tiny", model=TINY, n_stages=4, n_replicas=2, global_batch=16, microbatch=2, dtype="fp32"),
}
"""``dtfm-gpt3-xl`` is priced with the constants of DT-FM's public code, whatever its shape, and simulated
as GPT3-XL; ``gpt3-xl`` follows its own sizes throughout; ``tiny`` is for real runs on one machine."""
