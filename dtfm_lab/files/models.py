"""Models by name, from the config.json of a Hugging Face checkpoint, and as the section of a job file.

Keys of a config.json, and the defaults of absent or null ones, are those of the configuration classes of
``transformers``; the model is the one with a language-modelling head. Sizes of the model are required here, although
transformers has defaults.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from inspect import Parameter, signature
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.domain.job import MODELS, Layer, LayerKind, ModelSpec, estimated_held, gpt, llama, moe
from dtfm_lab.domain.job.model.families import NUMBERS_OF_CHOICES
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.registry import Registry, unknown
from dtfm_lab.files.reading import Section, located, name_or_file, parse, read_mapping

CONFIG_NAME = "config.json"


class LayersSection(Section):
    """``times`` equal layers. Without ``held_elements`` they hold what a gpt of this width holds."""

    kind: LayerKind
    times: int = Field(1, ge=1, le=10_000)
    parameters: int
    forward_flop: float
    output_elements: int
    held_elements: int | None = None
    attention_elements: float = 0.0
    selective_elements: int = 0
    selective_flop: float = 0.0
    moved_elements: int = 0
    frozen_elements: int = 0
    expert_elements: int = 0
    gated_elements: int = 0
    kv_elements: int = 0


class WholeSection(Section):
    """A model layer by layer, the form in which all models but presets are written."""

    name: str
    family: str = "gpt"
    source: str = ""
    d_model: int
    n_heads: int
    head_dim: int = 0
    seq_len: int
    vocab_size: int
    tied: bool
    n_experts: int = 0
    experts_per_token: int = 0
    layers: list[LayersSection] = Field(max_length=10_000)


NUMBERS_OF_A_LAYER = ("parameters", "forward_flop", "output_elements", "held_elements")

FAMILIES: Registry[Callable[..., ModelSpec]] = Registry(
    "model family", group="dtfm_lab.models", entries={"gpt": gpt, "llama": llama, "moe": moe}
)
"""Functions that make the models of a family; the keys of a file's section are the function's keywords."""


@cache
def section_of(build: Callable[..., ModelSpec]) -> type[Section]:
    """The section of a family, made from the signature of its function."""
    hints = get_type_hints(build)
    keys: dict[str, Any] = {
        name: (hints[name], ... if parameter.default is Parameter.empty else parameter.default)
        for name, parameter in signature(build).parameters.items()
    }
    return create_model("FamilySection", __base__=Section, family=(str, ""), **keys)


def load_model(
    name_or_path: str | os.PathLike[str], *, seq_len: int | None = None, folder: str | os.PathLike[str] = ""
) -> ModelSpec:
    """A preset by name, or the model of a Hugging Face config.json or a folder that holds one.

    Parameters
    ----------
    seq_len
        Tokens per sequence, where not the preset's, or the longest that the config.json names.
    folder
        Where a relative path starts.

    Raises FileError, JobError or UnknownName; a mistake in a config.json names the file and the key.
    """
    name = name_or_file(name_or_path, MODELS, folder)
    model = MODELS[name] if name in MODELS else _from_path(name, Path(folder, name))
    return model if seq_len is None else model.with_seq_len(seq_len)


def dtype_of_model(name_or_path: str | os.PathLike[str], *, folder: str | os.PathLike[str] = "") -> str | None:
    """The dtype that the config.json of ``load_model`` states; None for a preset, and where it states none.

    Raises FileError for a dtype in which no job computes.
    """
    name = name_or_file(name_or_path, MODELS, folder)
    if name in MODELS:
        return None
    path = _config_path(name, Path(folder, name))
    return dtype_from_config(read_mapping(path), where=str(path))


def model_from_section(data: dict[str, Any], where: str) -> ModelSpec:
    """A model from its fields: those of ``gpt``, of another family (with ``family: llama``), or layer by layer."""
    if "layers" in data:
        whole = parse(WholeSection, data, where)
        with located(where):
            rows = [(_layer(row), row.times) for row in whole.layers]
            layers = tuple(layer for layer, times in rows for _ in range(times))
            return ModelSpec(**whole.model_dump(exclude={"layers"}), layers=layers)
    family = data.get("family", "gpt")
    if not isinstance(family, str) or family not in FAMILIES:
        raise UnknownName(f"{where}: {unknown('model family', family, FAMILIES)}")
    build = FAMILIES[family]
    fields = parse(section_of(build), data, where).model_dump(exclude={"family"})
    with located(where):
        return build(**fields)


def model_to_section(model: ModelSpec) -> str | dict[str, Any]:
    """A preset's name, or all fields, from which an equal model is read."""
    if MODELS.get(model.name) == model:
        return model.name
    sometimes = ("source", "n_experts", "experts_per_token")
    said = {name: getattr(model, name) for name in WholeSection.model_fields if name != "layers"}
    layers = []
    for layer, alike in groupby(model.layers):
        row: dict[str, Any] = {"kind": str(layer.kind), "times": sum(1 for _ in alike)}
        row |= {name: getattr(layer, name) for name in NUMBERS_OF_A_LAYER}
        layers.append(row | {name: number for name in NUMBERS_OF_CHOICES if (number := getattr(layer, name))})
    return {name: value for name, value in said.items() if value or name not in sometimes} | {"layers": layers}


def _layer(row: LayersSection) -> Layer:
    layer = Layer(**row.model_dump(exclude={"times"}, exclude_none=True))
    if row.held_elements is not None:
        return layer
    return replace(layer, held_elements=estimated_held(layer.kind, layer.output_elements))


def _from_path(name: str, path: Path) -> ModelSpec:
    path = _config_path(name, path)
    title = path.resolve().parent.name if path.name == CONFIG_NAME else path.stem
    return model_from_config(read_mapping(path), where=str(path), name=title or path.stem)


def _config_path(name: str, path: Path) -> Path:
    """The config.json that a path names, or that its folder holds; raises FileError or UnknownName if there is none."""
    if name and os.path.isdir(path):
        path /= CONFIG_NAME
    elif path.suffix != ".json" and not os.path.isfile(path):
        raise unknown("model", name, MODELS)
    if not os.path.isfile(path):
        raise FileError(f"{path}: no such file; wanted a preset's name, a {CONFIG_NAME} or a folder that holds one")
    return path


def _size(key: str, most: int = 10**9) -> Any:
    """A required size, under this key of config.json."""
    return Field(alias=key, ge=1, le=most)


def _optional_size(key: str, default: int | None = None) -> Any:
    return Field(alias=key, default=default, ge=1, le=10**9)


class _Config(BaseModel):
    """A config.json, its keys mapped to the keywords of the function that makes the model.

    The many keys that change neither size nor work are ignored.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    def spec(self, name: str) -> ModelSpec:
        """The model that the config describes."""
        raise NotImplementedError


class Gpt2Config(_Config):
    n_layers: int = _size("n_layer", most=10_000)
    d_model: int = _size("n_embd")
    n_heads: int = _size("n_head")
    d_ff: int | None = _optional_size("n_inner")
    seq_len: int = _size("n_positions")
    vocab_size: int = _size("vocab_size")
    tied: bool = Field(alias="tie_word_embeddings", default=True)

    def spec(self, name: str) -> ModelSpec:
        return gpt(name=name, **self.model_dump())


class _LlamaShaped(_Config):
    n_layers: int = _size("num_hidden_layers", most=10_000)
    d_model: int = _size("hidden_size")
    d_ff: int = _size("intermediate_size")
    n_heads: int = _size("num_attention_heads")
    n_kv_heads: int | None = _optional_size("num_key_value_heads")
    head_dim: int | None = _optional_size("head_dim")
    seq_len: int = _size("max_position_embeddings")
    vocab_size: int = _size("vocab_size")
    tied: bool = Field(alias="tie_word_embeddings", default=False)

    def spec(self, name: str) -> ModelSpec:
        return llama(name=name, **self.model_dump())


class LlamaConfig(_LlamaShaped):
    qkv_bias: bool = Field(alias="attention_bias", default=False)
    mlp_bias: bool = False

    def spec(self, name: str) -> ModelSpec:
        return llama(name=name, attention_out_bias=self.qkv_bias, **self.model_dump())


class MistralConfig(_LlamaShaped):
    n_kv_heads: int | None = _optional_size("num_key_value_heads", default=8)


class Qwen2Config(_LlamaShaped):
    n_kv_heads: int | None = _optional_size("num_key_value_heads", default=32)

    def spec(self, name: str) -> ModelSpec:
        return llama(name=name, qkv_bias=True, **self.model_dump())


class Qwen3Config(_LlamaShaped):
    n_kv_heads: int | None = _optional_size("num_key_value_heads", default=32)
    head_dim: int | None = _optional_size("head_dim", default=128)
    biased: Literal[False] = Field(alias="attention_bias", default=False)

    def spec(self, name: str) -> ModelSpec:
        return llama(name=name, qk_norm=True, **self.model_dump(exclude={"biased"}))


class MixtralConfig(_LlamaShaped):
    n_kv_heads: int | None = _optional_size("num_key_value_heads", default=8)
    n_experts: int = _size("num_local_experts")
    experts_per_token: int = _size("num_experts_per_tok")

    def spec(self, name: str) -> ModelSpec:
        sizes = self.model_dump()
        return moe(name=name, d_expert=sizes.pop("d_ff"), **sizes)


class Qwen3MoeConfig(_LlamaShaped):
    """Qwen3's, of which every block has experts."""

    n_experts: int = _size("num_experts")
    experts_per_token: int = _size("num_experts_per_tok")
    d_expert: int = _size("moe_intermediate_size")
    each: Literal[1] = Field(alias="decoder_sparse_step", default=1)
    dense: list[int] = Field(alias="mlp_only_layers", default=[], max_length=0)

    def spec(self, name: str) -> ModelSpec:
        return moe(name=name, qk_norm=True, **self.model_dump(exclude={"each", "dense", "d_ff"}))


class DeepseekConfig(_Config):
    """DeepSeek-V2's and V3's, without the block that V3 has to predict several tokens."""

    n_layers: int = _size("num_hidden_layers", most=10_000)
    d_model: int = _size("hidden_size")
    d_ff: int = _size("intermediate_size")
    n_heads: int = _size("num_attention_heads")
    seq_len: int = _size("max_position_embeddings")
    vocab_size: int = _size("vocab_size")
    tied: bool = Field(alias="tie_word_embeddings", default=False)
    n_experts: int = _size("n_routed_experts")
    experts_per_token: int = _size("num_experts_per_tok")
    d_expert: int = _size("moe_intermediate_size")
    n_shared: int = Field(alias="n_shared_experts", ge=0, le=10**6)
    n_dense: int = Field(alias="first_k_dense_replace", ge=0, le=10_000)
    each: Literal[1] = Field(alias="moe_layer_freq", default=1)
    q_rank: int | None = _optional_size("q_lora_rank")
    kv_rank: int = _size("kv_lora_rank")
    nope_dim: int = _size("qk_nope_head_dim")
    rope_dim: int = _size("qk_rope_head_dim")
    value_dim: int = _size("v_head_dim")

    def spec(self, name: str) -> ModelSpec:
        sizes = self.model_dump(exclude={"each", "n_shared"})
        return moe(name=name, d_shared=self.n_shared * self.d_expert, **sizes)


CONFIGS: dict[str, type[_Config]] = {
    "gpt2": Gpt2Config,
    "llama": LlamaConfig,
    "mistral": MistralConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "mixtral": MixtralConfig,
    "qwen3_moe": Qwen3MoeConfig,
    "deepseek_v2": DeepseekConfig,
    "deepseek_v3": DeepseekConfig,
}


OTHER_KEYS = {"num_experts": "num_local_experts"}
"""What transformers 5 writes in place of a key of the published files."""


def model_from_config(data: dict[str, Any], *, where: str = "config.json", name: str = "model") -> ModelSpec:
    """The model that a config.json describes, on the longest sequences it names; ``where`` begins every error message.

    Raises FileError (missing key, wrong type, heads that do not divide), UnknownName (model_type) or
    JobError (a model too large to count).
    """
    if "model_type" not in data:
        raise FileError(f"{where}: no key 'model_type'; wanted one of {', '.join(CONFIGS)}")
    model_type = data["model_type"]
    if not isinstance(model_type, str) or model_type not in CONFIGS:
        raise UnknownName(f"{where}: {unknown('model_type', model_type, CONFIGS)}")
    data = {key: data[other] for key, other in OTHER_KEYS.items() if other in data} | data
    kind = CONFIGS[model_type]
    keys = {field_name: field.alias or field_name for field_name, field in kind.model_fields.items()}
    for field_name, key in keys.items():
        if kind.model_fields[field_name].is_required() and key not in data:
            raise FileError(f"{where}: no key {key!r}; wanted a whole number, as every {model_type} has")
    config = parse(kind, data, where)
    sizes = config.model_dump()
    pairs = [("n_heads", "d_model")] if sizes.get("head_dim") is None else []
    pairs += [("n_kv_heads", "n_heads")] if sizes.get("n_kv_heads") is not None else []
    for divisor, dividend in pairs:
        found, wanted = sizes[divisor], sizes[dividend]
        if wanted % found:
            raise FileError(
                f"{where}: {keys[divisor]} is {found}; wanted a divisor of {keys[dividend]}, which is {wanted}"
            )
    with located(where):
        return config.spec(name)


DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


def dtype_from_config(data: dict[str, Any], *, where: str = "config.json") -> str | None:
    """The dtype of a job that a config.json states under ``torch_dtype``, or ``dtype``; None where it states none.

    Raises FileError for a dtype in which no job computes.
    """
    key = "torch_dtype" if data.get("torch_dtype") is not None else "dtype"
    stated = data.get(key)
    if stated is None or stated == "auto":
        return None
    name = stated.removeprefix("torch.") if isinstance(stated, str) else stated
    if not isinstance(name, str) or name not in DTYPES:
        raise FileError(f"{where}: {key} is {shortened(stated)}; wanted {', '.join(DTYPES)}, or a job's own dtype")
    return DTYPES[name]
