"""A config.json gives the model that its checkpoint is, or one line that says what is wrong with it."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import FileError, JobError, LabError, UnknownName
from dtfm_lab.domain.job import MODELS, gpt, llama
from dtfm_lab.files import load_plan, load_topology, save_plan
from dtfm_lab.files.jobs import load_job
from dtfm_lab.files.models import load_model, model_from_config, model_from_section, model_to_section
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.simulate import simulate

CONFIGS = Path(__file__).parents[1] / "data" / "hf_configs"
SAME = {
    "gpt2": "gpt2-small",
    "gpt2-xl": "gpt2-xl",
    "Llama-2-7b-hf": "llama-2-7b",
    "Meta-Llama-3-8B": "llama-3-8b",
    "Mistral-7B-v0.1": "mistral-7b",
    "Qwen2-0.5B": "qwen2-0.5b",
    "Qwen2-7B": "qwen2-7b",
    "Qwen3-8B": "qwen3-8b",
}


def config(name: str, **changes: object) -> dict[str, object]:
    return json.loads((CONFIGS / f"{name}.json").read_text()) | changes


def without(name: str, *keys: str) -> dict[str, object]:
    return {k: v for k, v in config(name).items() if k not in keys}


@pytest.mark.parametrize("name", SAME)
def test_a_published_config_gives_the_preset(name):
    preset = MODELS[SAME[name]]
    longest = config(name).get("n_positions") or config(name)["max_position_embeddings"]
    assert load_model(CONFIGS / f"{name}.json").seq_len == longest
    assert load_model(CONFIGS / f"{name}.json", seq_len=preset.seq_len) == replace(preset, name=name)


def test_a_folder_stands_for_its_config_and_names_the_model(tmp_path):
    folder = tmp_path / "My-Model"
    folder.mkdir()
    shutil.copy(CONFIGS / "gpt2.json", folder / "config.json")
    model = load_model(folder)
    assert model == load_model(folder / "config.json") == load_model("My-Model", folder=tmp_path)
    assert model.name == "My-Model"


def test_a_preset_s_name_is_not_a_folder(tmp_path, monkeypatch):
    (tmp_path / "llama-2-7b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_model("llama-2-7b") is MODELS["llama-2-7b"]


DEFAULTS = {
    "gpt2 ties": (without("gpt2", "tie_word_embeddings"), {"tie_word_embeddings": True}),
    "llama does not tie": (without("Llama-2-7b-hf", "tie_word_embeddings"), {"tie_word_embeddings": False}),
    "a gpt2 mlp is four widths": (without("gpt2", "n_inner"), {"n_inner": 4 * 768}),
    "null groups nothing": (config("Mistral-7B-v0.1", num_key_value_heads=None), {"num_key_value_heads": 32}),
    "mistral groups": (without("Mistral-7B-v0.1", "num_key_value_heads"), {"num_key_value_heads": 8}),
    "llama has no biases": (without("Meta-Llama-3-8B", "attention_bias"), {"attention_bias": False, "mlp_bias": False}),
    "a head is its share": (config("Meta-Llama-3-8B", head_dim=None), {"head_dim": 128}),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_a_config_leaves_out_is_as_transformers_has_it(name):
    data, stated = DEFAULTS[name]
    assert model_from_config(data) == model_from_config(data | stated)


OPTIONS = {
    "mlp width of gpt2": (config("gpt2", n_inner=100), -12 * (2 * 768 + 1) * (3072 - 100)),
    "biases of attention": (config("Meta-Llama-3-8B", attention_bias=True), 32 * (4096 + 2 * 1024 + 4096)),
    "biases of the mlp": (config("Meta-Llama-3-8B", mlp_bias=True), 32 * (2 * 14336 + 4096)),
    "wider heads": (config("Meta-Llama-3-8B", head_dim=256), 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024)),
    "no bias that mistral would read": (config("Mistral-7B-v0.1", attention_bias=True), 0),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_a_config_changes_the_parameters_that_it_should(name):
    data, more = OPTIONS[name]
    original = {"gpt2": "gpt2", "llama": "Meta-Llama-3-8B", "mistral": "Mistral-7B-v0.1"}[data["model_type"]]
    assert model_from_config(data).parameters - model_from_config(config(original)).parameters == more


WRONG = {
    "no type": (
        without("gpt2", "model_type", "architectures"),
        FileError,
        "no key 'model_type'; wanted one of gpt2, llama, mistral, qwen2",
    ),
    "an architecture that is not read": (
        config("Qwen2-7B", model_type="gemma2", architectures=["Gemma2ForCausalLM"]),
        UnknownName,
        "model_type 'gemma2' is not known; known: gpt2, .*; any other torch module is planned with --module",
    ),
    "code of its own": (
        config("Qwen2-7B", model_type="moss", architectures=["MossForCausalLM"], auto_map={"AutoConfig": "a.B"}),
        UnknownName,
        r"model_type 'moss' needs its own code \(auto_map\), which is not run here, and is not known; .*--module",
    ),
    "a language model inside that is not read": (
        {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 8}},
        UnknownName,
        "text_config: model_type 'gemma3_text' is not known",
    ),
    "a language model inside without a width": (
        {"model_type": "llava", "text_config": without("Llama-2-7b-hf", "hidden_size")},
        FileError,
        "text_config: no key 'hidden_size'",
    ),
    "no width": (
        without("Llama-2-7b-hf", "hidden_size"),
        FileError,
        "no key 'hidden_size'; wanted a whole number, as every llama has",
    ),
    "words for a number": (config("gpt2", n_layer="12"), FileError, "n_layer: .*valid integer; found '12'"),
    "null for a width": (config("Qwen2-7B", hidden_size=None), FileError, "hidden_size: .*integer; found None"),
    "a number for truth": (
        config("Qwen2-7B", tie_word_embeddings=1),
        FileError,
        "tie_word_embeddings: .*boolean; found 1",
    ),
    "heads that do not divide": (
        config("Llama-2-7b-hf", num_attention_heads=30, num_key_value_heads=None),
        FileError,
        "num_attention_heads is 30; wanted a divisor of hidden_size, which is 4096",
    ),
    "gpt2 heads that do not divide": (
        config("gpt2", n_head=7),
        FileError,
        "n_head is 7; wanted a divisor of n_embd, which",
    ),
    "groups that do not divide": (
        config("Mistral-7B-v0.1", num_key_value_heads=5),
        FileError,
        "num_key_value_heads is 5; wanted a divisor of num_attention_heads, which is 32",
    ),
    "a model beyond counting": (
        config("gpt2", n_embd=10**9, n_head=1),
        JobError,
        "parameters is .*; wanted a whole number from 0",
    ),
}


READ = {
    "by its class alone": without("Qwen2-7B", "model_type") | {"architectures": ["Qwen2ForCausalLM"]},
    "by its class under a type of its own": config("Qwen2-7B", model_type="mine", architectures=["Qwen2ForCausalLM"]),
    "under another type": config("Qwen2-7B", model_type="qwen2_5_vl_text", architectures=None),
    "inside a larger model": {"model_type": "seeing", "text_config": config("Qwen2-7B"), "hidden_size": 5},
    "beside the parts that see": config("Qwen2-7B", model_type="qwen2_vl", vision_config={"depth": 2}),
    "with its type outside": {"model_type": "qwen2_vl", "text_config": without("Qwen2-7B", "model_type")},
}


@pytest.mark.parametrize("how", READ)
def test_a_known_architecture_is_read(how):
    assert model_from_config(READ[how]) == model_from_config(config("Qwen2-7B"))


def test_kimi_k2_is_a_deepseek_v3_with_other_sizes():
    small = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4}
    small |= {"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    small |= {"first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16}
    small |= {"qk_rope_head_dim": 8, "v_head_dim": 16, "vocab_size": 128, "max_position_embeddings": 32}
    kimi = model_from_config(small | {"model_type": "kimi_k2", "auto_map": {"AutoConfig": "configuration_deepseek.X"}})
    assert kimi == model_from_config(small | {"model_type": "deepseek_v3"})
    assert kimi.parameters == 267_576


def test_a_language_model_inside_ties_and_computes_as_the_whole_says(tmp_path):
    path = tmp_path / "seeing.json"
    inside = without("Qwen2-0.5B", "tie_word_embeddings", "torch_dtype")
    outside = {"model_type": "seeing", "tie_word_embeddings": True, "torch_dtype": "float32", "text_config": inside}
    path.write_text(json.dumps(outside))
    job = load_job("gpt3-xl", model=path)
    assert (job.model.tied, job.dtype) == (True, "fp32")
    assert "the language model of a seeing; its other parts are not planned" in job.model.notes[0]
    path.write_text(json.dumps({"model_type": "seeing", "text_config": config("Qwen2-0.5B", torch_dtype="float16")}))
    assert load_job("gpt3-xl", model=path).dtype == "fp16"


def test_a_long_sequence_that_only_the_config_names_is_said(tmp_path):
    taken = load_model(CONFIGS / "Qwen3-8B.json")
    (note,) = taken.notes
    assert "40,960 tokens, the max_position_embeddings of the model's config.json; --seq-len" in note
    assert not load_model(CONFIGS / "Qwen3-8B.json", seq_len=40960).notes
    assert not taken.with_seq_len(32768).notes
    assert not load_model(CONFIGS / "Meta-Llama-3-8B.json").notes
    assert not any(model.notes for model in MODELS.values())
    job = load_job("tiny", model=taken, n_stages=2, n_replicas=2)
    plan = evaluate(load_topology("lecture-hall"), job, stages=[[0, 1], [2, 3]])
    back = load_plan(save_plan(plan, tmp_path / "plan.json"))
    assert back.summary()["notes"] == plan.summary()["notes"] == [note]
    assert back.summary()["seq_len"] == 40960


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_config_is_one_line_that_names_the_file_and_the_key(tmp_path, name):
    data, error, says = WRONG[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(data))
    with pytest.raises(error, match=f"^{path}: .*{says}"):
        load_model(path)


def test_a_path_to_nothing_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"none\.json: no such file; wanted a preset's name, a config.json or a folder"):
        load_model(tmp_path / "none.json")
    with pytest.raises(FileError, match=r"config\.json: no such file"):
        load_model(tmp_path)
    with pytest.raises(UnknownName, match="no model named 'lama-2-7b'; did you mean 'llama-2-7b'"):
        load_model("lama-2-7b")
    for name in ("", "x" * 300):  # the second is too long for the name of a file
        with pytest.raises(UnknownName, match="no model named"):
            load_model(name)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
some_config = st.sampled_from(sorted(SAME)).map(config)
edits = st.dictionaries(
    st.sampled_from(sorted({key for name in SAME for key in config(name)} | {"head_dim", "n_inner", "mlp_bias"})),
    anything | st.integers(-2, 70) | st.integers(0, 10**12),
    max_size=4,
)


@given(some_config, edits, st.sets(st.integers(0, 20)), st.none() | st.integers(-3, 10**10) | anything)
@settings(max_examples=40)
def test_any_config_is_a_model_or_one_line(data, changes, dropped, seq_len):
    data = {k: v for i, (k, v) in enumerate((data | changes).items()) if i not in dropped}
    with suppress(LabError):
        model = model_from_config(data)
        if seq_len is not None:
            model = model.with_seq_len(seq_len)
        assert model.parameters >= 0
        assert model.forward_flop >= 0


SECTIONS = [
    {"n_layers": 2, "d_model": 8, "n_heads": 2, "seq_len": 4, "vocab_size": 10},
    {"family": "llama", "n_layers": 2, "d_model": 8, "n_heads": 2, "d_ff": 5, "seq_len": 4, "vocab_size": 10},
    model_to_section(replace(MODELS["llama-2-7b"], name="mine")),
]
layer_edits = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("kind", "times", "parameters", "forward_flop", "held_elements"), anything)
)


@given(
    st.sampled_from(SECTIONS),
    st.dictionaries(st.sampled_from(sorted({k for s in SECTIONS for k in s})), anything, max_size=3),
    layer_edits,
)
@settings(max_examples=30)
def test_any_section_of_a_job_file_is_a_model_or_one_line(section, changes, layer):
    if "layers" in section:
        section = section | {"layers": [row | layer for row in section["layers"]]}
    try:
        model_from_section(section | changes, "job: model")
    except LabError as error:
        refused = str(error)
    else:
        refused = "job: model: "
    assert refused.startswith("job: model: ")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_survives_as_a_section(name):
    assert model_to_section(MODELS[name]) == name
    renamed = replace(MODELS[name], name="mine")
    assert model_from_section(json.loads(json.dumps(model_to_section(renamed))), "job") == renamed


def test_layers_without_what_they_hold_are_taken_for_those_of_a_gpt():
    model = gpt(n_layers=2, d_model=8, n_heads=2, seq_len=4, vocab_size=50, name="mine")
    section = model_to_section(model)
    for row in section["layers"]:
        del row["held_elements"]
    back = model_from_section(section, "job")
    assert [layer.held_elements for layer in back.layers] == [0, 17 * 4 * 8, 17 * 4 * 8, 2 * 4 * 50]
    section["layers"][1]["held_elements"] = 0
    assert model_from_section(section, "job").layers[1].held_elements == 0


@pytest.mark.parametrize(
    "model",
    [
        load_model(CONFIGS / "Qwen2-0.5B.json", seq_len=100),
        llama(n_layers=3, d_model=8, n_heads=2, n_kv_heads=1, head_dim=5, d_ff=9, seq_len=7, vocab_size=11),
        gpt(n_layers=3, d_model=8, n_heads=2, d_ff=9, n_positions=20, seq_len=7, vocab_size=11),
    ],
    ids=lambda model: model.name,
)
def test_a_plan_of_any_model_survives_saving_and_simulates_alike(tmp_path, model):
    job = load_job("tiny", model=model, n_stages=2, n_replicas=2)
    plan = evaluate(load_topology("lecture-hall"), job, stages=[[0, 1], [2, 3]])
    back = load_plan(save_plan(plan, tmp_path / "plan.json"))
    assert back.job == job
    assert simulate(back).spans() == simulate(plan).spans()
