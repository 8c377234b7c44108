"""A model is known by the names that people type: the hub's own spellings, and others of the same architecture."""

import pytest

from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.job import JOBS, MODELS
from dtfm_lab.domain.job.names import NICKNAMES, model_named
from dtfm_lab.files.jobs import load_job
from dtfm_lab.files.models import load_model

SPELLINGS = {
    "gpt2": "gpt2-small",
    "GPT-2": "gpt2-small",
    "openai-community/gpt2-xl": "gpt2-xl",
    "gpt2-1.5b": "gpt2-xl",
    "gpt-3-xl": "gpt3-xl",
    "Meta-Llama-3-8B": "llama-3-8b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Meta-Llama-3.1-405B": "llama-3.1-405b",
    "meta-llama/Llama-2-7b-chat-hf": "llama-2-7b",
    "llama2-7b": "llama-2-7b",
    "llama_3_8b": "llama-3-8b",
    "llama3.1:8b": "llama-3.1-8b",
    "llama-3-1-8b": "llama-3.1-8b",
    "Qwen/Qwen3-8B": "qwen3-8b",
    "Qwen/Qwen2.5-Coder-7B-Instruct": "qwen2.5-7b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
    "mistralai/Mistral-7B-v0.1": "mistral-7b",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral-7b-v0.3",
    "mistralai/Mistral-Nemo-Base-2407": "mistral-nemo-12b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b",
    "mistralai/Mixtral-8x22B-v0.1": "mixtral-8x22b",
    "mistralai/Mixtral-8x22B-Instruct-v0.1": "mixtral-8x22b-instruct",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "tinyllama-1.1b",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1": "deepseek-v3",
    "moonshotai/Kimi-K2-Instruct": "kimi-k2",
}


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_a_model_is_known_however_it_is_spelled(spelled):
    known = SPELLINGS[spelled]
    assert load_model(spelled) is MODELS[known]
    assert load_job(spelled) == JOBS[known]
    assert load_job("gpt3-xl", model=spelled).name == known or known == "gpt3-xl"


def test_no_two_known_models_are_spelled_alike():
    assert [model_named(f"someone/{name.upper()}", JOBS) for name in JOBS] == list(JOBS)
    assert not [name for name, model in NICKNAMES.items() if model not in MODELS or model_named(name, MODELS) != model]


@pytest.mark.parametrize(
    ("spelled", "suggested"),
    [
        ("llama3", "'llama-3-8b'"),
        ("qwen3-9b", "'qwen3-8b'"),
        ("mixtral", "'mixtral-8x7b'"),
        ("meta-llama/Llama-3-8B-GGUF", "'llama-3-8b'"),
    ],
)
def test_an_unknown_name_is_answered_by_its_nearest_in_one_line(spelled, suggested):
    with pytest.raises(UnknownName, match=r"^no job named .*did you mean .*known: ") as refused:
        load_job(spelled)
    assert suggested in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_name_like_none_is_told_what_reads_any_model():
    with pytest.raises(UnknownName, match=r"^no job named 'gemma-2-9b'; known: .*config\.json .*--module"):
        load_job("gemma-2-9b")


@pytest.mark.parametrize("path", ["./gpt2", "models/old/gpt2", "gpt2.json", "~/gpt2"])
def test_a_path_is_no_model_s_name(path):
    assert model_named(path, MODELS) == path
