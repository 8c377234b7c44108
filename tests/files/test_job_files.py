"""Jobs by name, by file, with fields overridden."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dtfm_lab.domain.errors import FileError, JobError, UnknownName
from dtfm_lab.domain.job import GPT3_XL, JOBS, MODELS, TINY, Job, gpt, llama
from dtfm_lab.files import job_names, load_job, override, save_job

CONFIGS = Path(__file__).parents[1] / "data" / "hf_configs"
SHAPE = {"n_stages": 2, "n_replicas": 2, "global_batch": 8, "microbatch": 1}
MODEL = {"n_layers": 4, "d_model": 8, "n_heads": 2, "seq_len": 16, "vocab_size": 10}


def written(folder, **data):
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"dtfm_job": 1} | data))
    return path


@pytest.mark.parametrize("name", job_names())
def test_a_preset_survives_saving_exactly(tmp_path, name):
    assert load_job(save_job(JOBS[name], tmp_path / "saved.yaml")) == load_job(name) == JOBS[name]
    left_open = JOBS[name].with_fields(tensor_parallel=None, sharding=None)
    assert load_job(save_job(left_open, tmp_path / "open.yaml")) == left_open


MODELS_OF_ONES_OWN = [
    gpt(**MODEL),
    gpt(**MODEL, name="tiny", tied=False, d_ff=5, n_positions=99),
    llama(**MODEL, n_kv_heads=1, head_dim=3, d_ff=9, qkv_bias=True),
    GPT3_XL.with_seq_len(100),
    replace(gpt(**MODEL), layers=gpt(**MODEL).layers[1:3], name="no ends"),
]


@pytest.mark.parametrize("model", MODELS_OF_ONES_OWN, ids=lambda m: m.name)
def test_a_job_of_any_model_survives_saving_exactly(tmp_path, model):
    for job in (
        Job(name="mine", model=model, **SHAPE, dtype="bf16", schedule="1f1b", given_hop_bytes=0.1),
        replace(Job.from_bytes(3, 4, gradient_bytes=1 / 3 * 1e9, activation_bytes=0.0), n_stages=1, schedule="1f1b"),
    ):
        assert load_job(save_job(job, tmp_path / "saved.yaml")) == job


def test_a_preset_is_saved_by_name_and_equal_layers_once(tmp_path):
    saved = yaml.safe_load(save_job(JOBS["llama-2-70b"], tmp_path / "a.yaml").read_text())
    assert saved["model"] == "llama-2-70b"
    longer = load_job("llama-2-70b", seq_len=8192)
    saved = yaml.safe_load(save_job(longer, tmp_path / "a.yaml").read_text())
    assert [(row["kind"], row["times"]) for row in saved["model"]["layers"]] == [
        ("embedding", 1),
        ("block", 80),
        ("head", 1),
    ]


def test_a_file_may_name_a_model_or_describe_one(tmp_path):
    assert load_job(written(tmp_path, model="gpt3-xl", **SHAPE)) == Job(name="mine", model=GPT3_XL, **SHAPE)
    assert load_job(written(tmp_path, model=MODEL, **SHAPE)) == Job(name="mine", model=gpt(**MODEL), **SHAPE)
    shape = MODEL | {"n_kv_heads": 1, "d_ff": 20}
    data = shape | {"family": "llama"}
    assert load_job(written(tmp_path, model=data, **SHAPE)) == Job(name="mine", model=llama(**shape), **SHAPE)


def test_a_file_may_point_at_a_config_beside_it(tmp_path):
    (tmp_path / "own").mkdir()
    shutil.copy(CONFIGS / "Qwen2-0.5B.json", tmp_path / "own" / "config.json")
    job = load_job(written(tmp_path, model="own/config.json", seq_len=4096, **SHAPE))
    assert job.model == replace(MODELS["qwen2-0.5b"], name="own")
    assert load_job(written(tmp_path, base="llama-2-7b", model="own", seq_len=4096)).model == job.model
    with pytest.raises(FileError, match=r"^mine\.yaml: .*none\.json: no such file"):
        load_job(written(tmp_path, model="none.json", **SHAPE))


def test_a_file_may_change_a_preset(tmp_path):
    job = load_job(written(tmp_path, base="tiny", n_stages=2, gradient_bytes=5))
    assert (job.name, job.n_stages, job.gradient_bytes) == ("mine", 2, 5)
    assert (job.model, job.global_batch) == (TINY, JOBS["tiny"].global_batch)


def test_a_file_of_message_sizes_is_priced_only(tmp_path):
    job = load_job(written(tmp_path, n_stages=2, n_replicas=3, gradient_bytes=1e9, activation_bytes=2e9))
    assert job == Job.from_bytes(2, 3, 1e9, 2e9, name="mine")


def test_any_field_may_be_overridden(tmp_path):
    job = load_job("gpt3-xl", n_stages=4, global_batch=64, dtype="fp32", activation_bytes=7.0)
    assert (job.n_stages, job.global_batch, job.dtype, job.hop_bytes) == (4, 64, "fp32", 7)
    assert job.model is GPT3_XL
    assert job.n_replicas == JOBS["gpt3-xl"].n_replicas
    assert load_job("gpt3-xl", model="tiny").model is TINY
    assert load_job("llama-3-8b", model=CONFIGS / "Mistral-7B-v0.1.json", seq_len=512).tokens == 512 * 512
    assert load_job(written(tmp_path, base="tiny"), microbatch=1).microbatch == 1


def test_sizes_given_for_one_model_do_not_outlive_it():
    public = JOBS["dtfm-gpt3-xl"]
    assert load_job("dtfm-gpt3-xl", model="gpt3-xl", seq_len=2048) == public
    assert load_job("dtfm-gpt3-xl", dtype="fp32").gradient_bytes == public.gradient_bytes
    other = load_job("dtfm-gpt3-xl", model="llama-2-7b")
    assert other.gradient_bytes == max(other.stage_gradient_bytes)
    assert other.hop_bytes == other.n_microbatches * other.activation_bytes
    assert load_job("dtfm-gpt3-xl", model="llama-2-7b", gradient_bytes=3.0).gradient_bytes == 3
    shorter = load_job("dtfm-gpt3-xl", seq_len=1024)
    assert shorter.hop_bytes == shorter.n_microbatches * shorter.activation_bytes
    attached = override(Job.from_bytes(2, 2, 5, 6), model="tiny")
    assert (attached.gradient_bytes, attached.hop_bytes, attached.model) == (5, 6, TINY)


@pytest.mark.parametrize("shape", [{"n_stages": 4}, {"n_replicas": 4}, {"global_batch": 256}, {"seq_len": 32}])
def test_sizes_given_for_one_shape_do_not_outlive_it(shape, tmp_path):
    given = load_job("tiny", n_stages=2, n_replicas=2, global_batch=512, gradient_bytes=3.0, activation_bytes=4.0)
    for job in (JOBS["dtfm-gpt3-xl"], given, load_job(save_job(given, tmp_path / "given.yaml"))):
        other = override(job, **shape)
        assert (other.given_gradient_bytes, other.given_hop_bytes) == (None, None)
        assert other.gradient_bytes == max(other.stage_gradient_bytes)
        assert override(job, **shape, gradient_bytes=7.0).gradient_bytes == 7
        kept = override(job, microbatch=2, dtype="fp32", n_stages=job.n_stages, schedule="1f1b")
        assert (kept.gradient_bytes, kept.hop_bytes) == (job.gradient_bytes, job.hop_bytes)


def test_sizes_alone_are_not_cut_into_other_stages():
    job = Job.from_bytes(4, 2, 5, 6)
    with pytest.raises(JobError, match="job bytes has no model, only the message sizes of 4 stages; wanted grad"):
        override(job, n_stages=2)
    assert override(job, n_stages=2, gradient_bytes=10).gradient_bytes == 10
    assert override(job, n_replicas=3, global_batch=3).hop_bytes == 6


@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
@pytest.mark.parametrize(("stated", "dtype"), [("float16", "fp16"), ("bfloat16", "bf16"), ("torch.float32", "fp32")])
def test_a_config_gives_the_job_its_dtype_unless_one_is_named(tmp_path, key, stated, dtype):
    config = json.loads((CONFIGS / "Qwen2-0.5B.json").read_text()) | {key: stated}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    assert load_job("tiny", model=tmp_path / "mine").dtype == dtype
    assert load_job("tiny", model=tmp_path / "mine", dtype="fp64").dtype == "fp64"
    assert load_job(written(tmp_path, base="tiny", model="mine")).dtype == dtype
    assert load_job(written(tmp_path, model="mine", **SHAPE)).dtype == dtype
    assert load_job(written(tmp_path, base="tiny", model="mine", dtype="fp64")).dtype == "fp64"


def test_a_config_without_a_dtype_or_with_one_in_which_no_job_computes(tmp_path):
    config = json.loads((CONFIGS / "Qwen2-0.5B.json").read_text())
    for stated in (None, "auto"):
        (tmp_path / "own.json").write_text(json.dumps(config | {"torch_dtype": stated}))
        assert load_job("tiny", model=tmp_path / "own.json").dtype == "fp32"
    (tmp_path / "own.json").write_text(json.dumps(config | {"torch_dtype": "float8_e4m3fn"}))
    with pytest.raises(FileError, match=r"own\.json: torch_dtype is 'float8_e4m3fn'; wanted float16, bfloat16"):
        load_job("tiny", model=tmp_path / "own.json")
    assert load_job("tiny", model=tmp_path / "own.json", dtype="bf16").dtype == "bf16"


def test_another_model_names_the_job_unless_a_name_is_given(tmp_path):
    assert load_job("dtfm-gpt3-xl", model="llama-2-7b").name == "llama-2-7b"
    assert load_job("tiny", model=CONFIGS / "Mistral-7B-v0.1.json").name == "Mistral-7B-v0.1"
    assert load_job("tiny", model="gpt2-small", name="mine").name == "mine"
    assert load_job("dtfm-gpt3-xl", model="gpt3-xl").name == "dtfm-gpt3-xl"
    assert load_job(written(tmp_path, base="tiny", model="gpt2-small")).name == "mine"


WRONG = {
    "a stray key": ({"base": "tiny", "n_stage": 2}, FileError, "unknown key 'n_stage'; did you mean 'n_stages'"),
    "words for a number": ({"base": "tiny", "n_stages": "two"}, FileError, "n_stages: .*valid integer.*; found 'two'"),
    "no model": ({"n_stages": 2}, JobError, "no 'n_replicas'; wanted a base, a model, or the four of n_stages, "),
    "no batch": (
        {"model": "tiny", "n_stages": 2, "n_replicas": 1},
        JobError,
        "no 'global_batch'; wanted a base, or a model and",
    ),
    "an unknown base": ({"base": "tinny"}, UnknownName, "no job named 'tinny'; did you mean 'tiny'"),
    "an unknown model": (
        {"base": "tiny", "model": "gpt3-x"},
        UnknownName,
        "no model named 'gpt3-x'; did you mean 'gpt3-xl'",
    ),
    "an unknown family": (
        {"model": MODEL | {"family": "lama"}, **SHAPE},
        UnknownName,
        "model: no model family named 'lama'; did you mean 'llama'",
    ),
    "a llama without a width": ({"model": MODEL | {"family": "llama"}, **SHAPE}, FileError, "model: d_ff: field requ"),
    "a length of nothing": (
        {"n_stages": 1, "n_replicas": 1, "gradient_bytes": 1, "activation_bytes": 1, "seq_len": 8},
        JobError,
        "seq_len is 8, but the job has no model",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_refused_in_one_line_that_names_the_file(tmp_path, name):
    data, error, says = WRONG[name]
    with pytest.raises(error, match=rf"^mine\.yaml: .*{says}"):
        load_job(written(tmp_path, **data))


def test_an_unknown_job_or_field_is_refused_with_the_nearest_one():
    with pytest.raises(UnknownName, match=r"no job named 'gpt3-x'; did you mean 'gpt3-xl'\? known: deepseek-v2, "):
        load_job("gpt3-x")
    with pytest.raises(UnknownName, match="no job named ''"):
        load_job("")
    with pytest.raises(UnknownName, match="no job field named 'stages'; did you mean 'n_stages'"):
        load_job("tiny", stages=2)
    with pytest.raises(UnknownName, match="no job field named 'given_hop_bytes'"):
        load_job("tiny", given_hop_bytes=2.0)
    with pytest.raises(JobError, match="model is 5; wanted a ModelSpec, a preset's name or a path"):
        load_job("tiny", model=5)
