"""Read models from the config.json of a Hugging Face checkpoint.

Keys, and the defaults of missing or null ones, come from the configuration classes of ``transformers``. The model is
the one with a language-modelling head. Most sizes are required here, although transformers has defaults for them.
"""

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.domain.job import ModelSpec, gpt, llama, moe
from dtfm_lab.domain.network import shortened
from dtfm_lab.files.reading import located, parse


def _size(key: str, most: int = 10**9) -> Any:
    """Return a pydantic field for a size that config.json must state under this key."""
    return Field(alias=key, ge=1, le=most)


def _optional_size(key: str, default: int | None = None) -> Any:
    return Field(alias=key, default=default, ge=1, le=10**9)


class _Config(BaseModel):
    """A config.json whose keys map to the keywords of the function that makes the model.

    Keys that change neither size nor work are ignored.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)

    def spec(self, name: str) -> ModelSpec:
        """Return the model that the config describes."""
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
    """Qwen3 mixture of experts, with experts in every block."""

    n_experts: int = _size("num_experts")
    experts_per_token: int = _size("num_experts_per_tok")
    d_expert: int = _size("moe_intermediate_size")
    each: Literal[1] = Field(alias="decoder_sparse_step", default=1)
    dense: list[int] = Field(alias="mlp_only_layers", default=[], max_length=0)

    def spec(self, name: str) -> ModelSpec:
        return moe(name=name, qk_norm=True, **self.model_dump(exclude={"each", "dense", "d_ff"}))


class DeepseekConfig(_Config):
    """DeepSeek-V2 and V3, without V3's extra block for predicting several tokens."""

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


OTHER_TYPES = {
    "kimi_k2": "deepseek_v3",
    **dict.fromkeys(("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), "qwen2"),
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
}
"""``model_type`` -> the known type with the same architecture. For a vision-language model, the type of its language
model."""
ARCHITECTURES = {
    **{"GPT2": "gpt2", "Llama": "llama", "LLaMA": "llama", "Mistral": "mistral", "Mixtral": "mixtral"},
    **{"Qwen2": "qwen2", "Qwen3": "qwen3", "Qwen3Moe": "qwen3_moe"},
    **{"DeepseekV2": "deepseek_v2", "DeepseekV3": "deepseek_v3"},
}
"""Class name in a config's ``architectures``, without its ending (``CLASS_ENDINGS``) -> ``model_type``."""
CLASS_ENDINGS = ("ForCausalLM", "LMHeadModel", "Model")
TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Keys under which a multimodal model's config holds its language model's config."""
OTHER_KEYS = {"num_experts": "num_local_experts"}
"""Key in published files -> the key that transformers 5 writes instead."""
WITH_MODULE = "any other torch module is planned with --module FILE.PY:FUNCTION"


def model_from_config(data: dict[str, Any], *, where: str = "config.json", name: str = "model") -> ModelSpec:
    """Return the model that a config.json describes, with the longest sequences it names.

    ``where`` begins every error message. The architecture follows from ``model_type``, else from ``architectures``. If
    the config of a larger model holds a language model's config, that one counts. Raises FileError (missing key, wrong
    type, heads that do not divide), UnknownName (model_type) or JobError (a model too large to count).
    """
    part, data = _language_model(data)
    model_type = _type_of(data)
    if part:
        where = f"{where}: {part[1]}"
    if model_type is None:
        raise _unknown_type(data, where)
    # Old configurations have other names for the same sizes, and the usual name wins.
    data = {key: data[other] for key, other in OTHER_KEYS.items() if other in data} | data
    kind = CONFIGS[model_type]
    keys = {field_name: field.alias or field_name for field_name, field in kind.model_fields.items()}
    for field_name, key in keys.items():
        if kind.model_fields[field_name].is_required() and key not in data:
            raise FileError(f"{where}: no key {key!r}; wanted a whole number, as every {model_type} has")
    config = parse(kind, data, where)
    sizes = config.model_dump()
    # Without a stated width per head, the heads divide the model's width.
    pairs = [("n_heads", "d_model")] if sizes.get("head_dim") is None else []
    pairs += [("n_kv_heads", "n_heads")] if sizes.get("n_kv_heads") is not None else []
    for divisor, dividend in pairs:
        found, wanted = sizes[divisor], sizes[dividend]
        if wanted % found:
            raise FileError(
                f"{where}: {keys[divisor]} is {found}; wanted a divisor of {keys[dividend]}, which is {wanted}"
            )
    with located(where):
        return replace(config.spec(name), length_from=keys["seq_len"], part_of=part[0] if part else "")


def _language_model(data: dict[str, Any]) -> tuple[tuple[str, str] | None, dict[str, Any]]:
    """Return the config of the language model. If that is a part of a larger model's config, return the larger model's
    type and the key of the part before it, otherwise None."""
    key = next((key for key in TEXT_PARTS if isinstance(data.get(key), dict)), None)
    # a config that has sizes itself is a language model
    if key is None or (_type_of(data) is not None and "hidden_size" in data):
        return None, data
    # these may be written outside of the part, whose own values win
    outside = {what: data[what] for what in ("tie_word_embeddings", "model_type") if what in data}
    return (shortened(data.get("model_type", "unnamed")).strip("'"), key), outside | data[key]


def _type_of(data: dict[str, Any]) -> str | None:
    """Return the known type of an architecture; None if unknown."""
    stated = data.get("model_type")
    if isinstance(stated, str) and (found := OTHER_TYPES.get(stated, stated)) in CONFIGS:
        return found
    classes = data.get("architectures")
    for each in classes if isinstance(classes, list) else []:
        for ending in CLASS_ENDINGS:
            if isinstance(each, str) and each.endswith(ending) and each.removesuffix(ending) in ARCHITECTURES:
                return ARCHITECTURES[each.removesuffix(ending)]
    return None


def _unknown_type(data: dict[str, Any], where: str) -> FileError | UnknownName:
    known = ", ".join(CONFIGS)
    if "model_type" not in data:
        return FileError(f"{where}: no key 'model_type'; wanted one of {known}; {WITH_MODULE}")
    code = " needs its own code (auto_map), which is not run here, and" if data.get("auto_map") else ""
    found = shortened(data["model_type"])
    return UnknownName(f"{where}: model_type {found}{code} is not known; known: {known}; {WITH_MODULE}")


DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


def dtype_from_config(data: dict[str, Any], *, where: str = "config.json") -> str | None:
    """Return the job dtype that a config.json states as ``torch_dtype`` or ``dtype``; None if it states none or
    ``auto``.

    Raises FileError for a dtype that no job supports.
    """
    _, inside = _language_model(data)
    # Models that see and read state it inside or outside.
    stating = [one for one in (data, inside) if any(one.get(key) is not None for key in ("torch_dtype", "dtype"))]
    data = stating[0] if stating else data
    key = "torch_dtype" if data.get("torch_dtype") is not None else "dtype"
    stated = data.get(key)
    if stated is None or stated == "auto":
        return None
    name = stated.removeprefix("torch.") if isinstance(stated, str) else stated
    if not isinstance(name, str) or name not in DTYPES:
        raise FileError(f"{where}: {key} is {shortened(stated)}; wanted {', '.join(DTYPES)}, or a job's own dtype")
    return DTYPES[name]
