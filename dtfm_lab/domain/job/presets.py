"""Models and jobs by name."""

from typing import Any

from dtfm_lab.domain.job.job import Job
from dtfm_lab.domain.job.model import ModelSpec, gpt, llama, moe
from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.units import GB, GiB

GPT_VOCABULARY = 50257
"""Vocabulary size of GPT-2 and GPT-3 (Radford et al. 2019)."""

TINY = gpt(name="tiny", n_layers=8, d_model=128, n_heads=4, seq_len=64, vocab_size=256, tied=False)
"""1.7 million parameters on bytes of text. It trains on a laptop's CPU within seconds."""

SMALL = gpt(name="small", n_layers=8, d_model=256, n_heads=4, seq_len=64, vocab_size=256, tied=False)
"""6.5 million parameters on bytes of text. After about ten seconds on a laptop's CPU, its loss falls below the entropy
of the bytes' frequencies."""


def _gpt2(name: str, n_layers: int, d_model: int, n_heads: int) -> ModelSpec:
    """Return a GPT-2 model: Radford et al. 2019, table 2, with the heads of the published checkpoints."""
    return gpt(name=name, n_layers=n_layers, d_model=d_model, n_heads=n_heads, seq_len=1024, vocab_size=GPT_VOCABULARY)


def _gpt3(name: str, n_layers: int, d_model: int, n_heads: int) -> ModelSpec:
    """Return a GPT-3 model: Brown et al. 2020, table 2.1. Its alternating sparse attention counts as dense."""
    return gpt(name=name, n_layers=n_layers, d_model=d_model, n_heads=n_heads, seq_len=2048, vocab_size=GPT_VOCABULARY)


LLAMA_COLUMNS = ("n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "seq_len", "vocab_size", "head_dim")


def _llama(name: str, *row: int, **variant: bool) -> ModelSpec:
    sizes: dict[str, Any] = dict(zip(LLAMA_COLUMNS, row, strict=False))
    return llama(name=name, **sizes, **variant)


DEEPSEEK_HEADS = {"kv_rank": 512, "nope_dim": 128, "rope_dim": 64, "value_dim": 128}

GPT3_XL = _gpt3("gpt3-xl", 24, 2048, 16)
"""1.3 billion parameters, DT-FM section 4.1. It has 16 heads of 128, because the paper's 24 do not divide 2048."""

_MODELS = (
    TINY,
    SMALL,
    _gpt2("gpt2-small", 12, 768, 12),
    _gpt2("gpt2-medium", 24, 1024, 16),
    _gpt2("gpt2-large", 36, 1280, 20),
    _gpt2("gpt2-xl", 48, 1600, 25),
    GPT3_XL,
    _gpt3("gpt3-2.7b", 32, 2560, 32),
    _gpt3("gpt3-6.7b", 32, 4096, 32),
    _gpt3("gpt3-13b", 40, 5120, 40),  # the table says 5140, which 40 heads of 128 are not
    _gpt3("gpt3-175b", 96, 12288, 96),
    # Touvron et al. 2023, "LLaMA", table 2: trained on 2048 tokens; widths from the published configurations
    _llama("llama-7b", 32, 4096, 32, 32, 11008, 2048, 32000),
    _llama("llama-13b", 40, 5120, 40, 40, 13824, 2048, 32000),
    _llama("llama-30b", 60, 6656, 52, 52, 17920, 2048, 32000),
    _llama("llama-65b", 80, 8192, 64, 64, 22016, 2048, 32000),
    # Touvron et al. 2023, "Llama 2": trained on 4096 tokens; widths from the published configurations
    _llama("llama-2-7b", 32, 4096, 32, 32, 11008, 4096, 32000),
    _llama("llama-2-13b", 40, 5120, 40, 40, 13824, 4096, 32000),
    _llama("llama-2-70b", 80, 8192, 64, 8, 28672, 4096, 32000),
    # Grattafiori et al. 2024, table 3; trained on 8192 tokens
    _llama("llama-3-8b", 32, 4096, 32, 8, 14336, 8192, 128256),
    _llama("llama-3-70b", 80, 8192, 64, 8, 28672, 8192, 128256),
    # Jiang et al. 2023, table 1
    _llama("mistral-7b", 32, 4096, 32, 8, 14336, 8192, 32000),
    # its successors, from the published configurations; what they were trained on is not published
    _llama("mistral-7b-v0.3", 32, 4096, 32, 8, 14336, 8192, 32768),
    _llama("mistral-nemo-12b", 40, 5120, 32, 8, 14336, 8192, 131072, 128),
    _llama("mistral-small-24b", 40, 5120, 32, 8, 32768, 8192, 131072, 128),
    # from the published configurations: of SmolLM2, TinyLlama and Yi, which are shaped as a Llama
    _llama("smollm2-135m", 30, 576, 9, 3, 1536, 2048, 49152, tied=True),
    _llama("smollm2-360m", 32, 960, 15, 5, 2560, 2048, 49152, tied=True),
    _llama("smollm2-1.7b", 24, 2048, 32, 32, 8192, 2048, 49152, tied=True),
    _llama("tinyllama-1.1b", 22, 2048, 32, 4, 5632, 2048, 32000),
    _llama("yi-6b", 32, 4096, 32, 4, 11008, 4096, 64000),
    _llama("yi-34b", 60, 7168, 56, 8, 20480, 4096, 64000),
    # Yang et al. 2024, table 1; most of the training was on 4096 tokens; vocabulary from the published configurations
    _llama("qwen2-0.5b", 24, 896, 14, 2, 4864, 4096, 151936, qkv_bias=True, tied=True),
    _llama("qwen2-1.5b", 28, 1536, 12, 2, 8960, 4096, 151936, qkv_bias=True, tied=True),
    _llama("qwen2-7b", 28, 3584, 28, 4, 18944, 4096, 152064, qkv_bias=True),
    _llama("qwen2-72b", 80, 8192, 64, 8, 29568, 4096, 152064, qkv_bias=True),
    # Llama 3.1 to 3.3, Qwen2.5 and Qwen3: from the published configurations, with the sequence lengths of Llama 3 and
    # Qwen2
    _llama("llama-3.1-8b", 32, 4096, 32, 8, 14336, 8192, 128256),
    _llama("llama-3.1-70b", 80, 8192, 64, 8, 28672, 8192, 128256),
    _llama("llama-3.1-405b", 126, 16384, 128, 8, 53248, 8192, 128256),
    _llama("llama-3.2-1b", 16, 2048, 32, 8, 8192, 8192, 128256, tied=True),
    _llama("llama-3.2-3b", 28, 3072, 24, 8, 8192, 8192, 128256, tied=True),
    _llama("llama-3.3-70b", 80, 8192, 64, 8, 28672, 8192, 128256),
    _llama("qwen2.5-0.5b", 24, 896, 14, 2, 4864, 4096, 151936, qkv_bias=True, tied=True),
    _llama("qwen2.5-1.5b", 28, 1536, 12, 2, 8960, 4096, 151936, qkv_bias=True, tied=True),
    _llama("qwen2.5-3b", 36, 2048, 16, 2, 11008, 4096, 151936, qkv_bias=True, tied=True),
    _llama("qwen2.5-7b", 28, 3584, 28, 4, 18944, 4096, 152064, qkv_bias=True),
    _llama("qwen2.5-14b", 48, 5120, 40, 8, 13824, 4096, 152064, qkv_bias=True),
    _llama("qwen2.5-32b", 64, 5120, 40, 8, 27648, 4096, 152064, qkv_bias=True),
    _llama("qwen2.5-72b", 80, 8192, 64, 8, 29568, 4096, 152064, qkv_bias=True),
    _llama("qwen3-0.6b", 28, 1024, 16, 8, 3072, 4096, 151936, 128, qk_norm=True, tied=True),
    _llama("qwen3-1.7b", 28, 2048, 16, 8, 6144, 4096, 151936, 128, qk_norm=True, tied=True),
    _llama("qwen3-4b", 36, 2560, 32, 8, 9728, 4096, 151936, 128, qk_norm=True, tied=True),
    _llama("qwen3-8b", 36, 4096, 32, 8, 12288, 4096, 151936, 128, qk_norm=True),
    _llama("qwen3-14b", 40, 5120, 40, 8, 17408, 4096, 151936, 128, qk_norm=True),
    _llama("qwen3-32b", 64, 5120, 64, 8, 25600, 4096, 151936, 128, qk_norm=True),
    # with experts; trained on 4096 tokens, except Mixtral, whose length is not published
    moe(  # Jiang et al. 2024, table 1
        name="mixtral-8x7b",
        **dict[str, Any](
            n_layers=32, d_model=4096, n_heads=32, n_kv_heads=8, head_dim=128, seq_len=8192, vocab_size=32000
        ),
        **dict[str, Any](d_expert=14336, n_experts=8, experts_per_token=2),
    ),
    *(
        moe(  # from the published configurations of v0.1: the instructed version has a larger vocabulary
            name=name,
            **dict[str, Any](n_layers=56, d_model=6144, n_heads=48, n_kv_heads=8, head_dim=128, seq_len=8192),
            **dict[str, Any](d_expert=16384, n_experts=8, experts_per_token=2, vocab_size=vocab_size, qk_norm=False),
        )
        for name, vocab_size in (("mixtral-8x22b", 32000), ("mixtral-8x22b-instruct", 32768))
    ),
    moe(  # Yang et al. 2025 ("Qwen3 Technical Report"), table 2; widths from the published configuration
        name="qwen3-30b-a3b",
        **dict[str, Any](
            n_layers=48, d_model=2048, n_heads=32, n_kv_heads=4, head_dim=128, seq_len=4096, vocab_size=151936
        ),
        **dict[str, Any](d_expert=768, n_experts=128, experts_per_token=8),
        qk_norm=True,
    ),
    moe(  # the same
        name="qwen3-235b-a22b",
        **dict[str, Any](
            n_layers=94, d_model=4096, n_heads=64, n_kv_heads=4, head_dim=128, seq_len=4096, vocab_size=151936
        ),
        **dict[str, Any](d_expert=1536, n_experts=128, experts_per_token=8),
        qk_norm=True,
    ),
    moe(  # DeepSeek-AI 2024 ("DeepSeek-V2"), appendix B; widths from the published configuration
        name="deepseek-v2-lite",
        **dict[str, Any](n_layers=27, d_model=2048, n_heads=16, seq_len=4096, vocab_size=102400),
        **dict[str, Any](d_expert=1408, n_experts=64, experts_per_token=6, d_shared=2816, n_dense=1, d_ff=10944),
        **dict[str, Any](**DEEPSEEK_HEADS),
    ),
    moe(  # DeepSeek-AI 2024 ("DeepSeek-V2"), section 3.1.2
        name="deepseek-v2",
        **dict[str, Any](n_layers=60, d_model=5120, n_heads=128, seq_len=4096, vocab_size=102400),
        **dict[str, Any](d_expert=1536, n_experts=160, experts_per_token=6, d_shared=3072, n_dense=1, d_ff=12288),
        **dict[str, Any](q_rank=1536, **DEEPSEEK_HEADS),
    ),
    moe(  # DeepSeek-AI 2024 ("DeepSeek-V3"), section 4.2; without the block that predicts a second token
        name="deepseek-v3",
        **dict[str, Any](n_layers=61, d_model=7168, n_heads=128, seq_len=4096, vocab_size=129280),
        **dict[str, Any](d_expert=2048, n_experts=256, experts_per_token=8, d_shared=2048, n_dense=3, d_ff=18432),
        **dict[str, Any](q_rank=1536, **DEEPSEEK_HEADS),
    ),
    moe(  # Kimi Team 2025 ("Kimi K2"), table 2: DeepSeek-V3 with more experts and fewer heads
        name="kimi-k2",
        **dict[str, Any](n_layers=61, d_model=7168, n_heads=64, seq_len=4096, vocab_size=163840),
        **dict[str, Any](d_expert=2048, n_experts=384, experts_per_token=8, d_shared=2048, n_dense=1, d_ff=18432),
        **dict[str, Any](q_rank=1536, **DEEPSEEK_HEADS),
    ),
)

MODELS: dict[str, ModelSpec] = {model.name: model for model in _MODELS}
"""Models by name, each with the sequence length it was trained on. ``ModelSpec.with_seq_len`` changes that."""

DTFM_GRADIENT_BYTES = 1.3 * 4 * 3 / 24 * GB
"""1.3 billion parameters of 4 bytes, 3 of 24 layers per stage, in the public code's "GB"."""

DTFM_HOP_BYTES = 2024 * 2048 * 2 * (1.25e5 / 2048) / GiB * GB
"""Activations of one replica. The public code has 2024 where 2048 is meant, and uses a GiB figure as GB. Both are kept,
because published costs depend on them."""


BATCHES = {
    **{"llama-2-7b": 1024, "llama-2-13b": 1024, "llama-2-70b": 1024},  # Touvron et al. 2023: 4 million tokens
    **{"qwen3-30b-a3b": 1024, "deepseek-v3": 4096},  # DeepSeek's report: from 3072 to 15360
}
"""Sequences per iteration of each model's job (512 if not listed, as in Radford et al. 2019)."""


OPEN: dict[str, Any] = dict.fromkeys(("tensor_parallel", "sharding", "synchronisation", "overlap"))
"""Fields with non-None defaults that a planner chooses for a job that pins nothing."""


def _job(model: ModelSpec) -> Job:
    """Return the job to train a model; the planner chooses everything that a launch can choose."""
    return Job(name=model.name, model=model, global_batch=BATCHES.get(model.name, 512), dtype="bf16", **OPEN)


_JOBS = (
    Job(
        name="dtfm-gpt3-xl",
        model=GPT3_XL,
        n_stages=8,
        n_replicas=8,
        global_batch=512,
        microbatch=1,
        given_gradient_bytes=DTFM_GRADIENT_BYTES,
        given_hop_bytes=DTFM_HOP_BYTES,
    ),
    Job(name="gpt3-xl", model=GPT3_XL, global_batch=1024, **OPEN),
    Job(name="tiny", model=TINY, n_stages=4, n_replicas=2, global_batch=16, microbatch=2, dtype="fp32"),
    Job(name="small", model=SMALL, n_stages=4, n_replicas=2, global_batch=16, microbatch=2, dtype="fp32"),
)

JOBS: Registry[Job] = Registry(
    "job",
    group="dtfm_lab.jobs",
    entries={job.name: job for job in (*map(_job, _MODELS), *_JOBS)},
    fits=lambda entry: isinstance(entry, Job),
)
"""Jobs by name.

``dtfm-gpt3-xl`` is priced with the constants of DT-FM's public code, which fit its shape and batch. It is simulated as
GPT3-XL, and other shapes use the model's own sizes. ``gpt3-xl`` uses its own sizes throughout. ``tiny`` and ``small``
are for real runs on one machine. Every other model has a job of its name, with batches of 0.5 to 17 million tokens.
These jobs and ``gpt3-xl`` leave everything that a launch can choose to the planner.
"""
