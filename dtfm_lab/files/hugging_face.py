"""The config.json of a Hugging Face checkpoint as a ModelSpec: gpt2, llama, mistral and qwen2.

Keys, and the defaults of absent or null ones, are those of the configuration classes of ``transformers``; the model is
the one with a language-modelling head. Sizes of the model are required here, although transformers has defaults.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.domain.job import ModelSpec, gpt, llama
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files.reading import located, parse


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

    def indivisible(self) -> list[tuple[str, str]]:
        """Pairs of fields of which the first should divide the second but does not."""
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

    def indivisible(self) -> list[tuple[str, str]]:
        return [("n_heads", "d_model")] if self.d_model % self.n_heads else []


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

    def indivisible(self) -> list[tuple[str, str]]:
        pairs = []
        if self.head_dim is None and self.d_model % self.n_heads:
            pairs.append(("n_heads", "d_model"))
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            pairs.append(("n_kv_heads", "n_heads"))
        return pairs


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


CONFIGS: dict[str, type[_Config]] = {
    "gpt2": Gpt2Config,
    "llama": LlamaConfig,
    "mistral": MistralConfig,
    "qwen2": Qwen2Config,
}


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
    kind = CONFIGS[model_type]
    keys = {field_name: field.alias or field_name for field_name, field in kind.model_fields.items()}
    for field_name, key in keys.items():
        if kind.model_fields[field_name].is_required() and key not in data:
            raise FileError(f"{where}: no key {key!r}; wanted a whole number, as every {model_type} has")
    config = parse(kind, data, where)
    for divisor, dividend in config.indivisible():
        found, wanted = getattr(config, divisor), getattr(config, dividend)
        raise FileError(f"{where}: {keys[divisor]} is {found}; wanted a divisor of {keys[dividend]}, which is {wanted}")
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
