"""The config.json of a Hugging Face checkpoint as a ModelSpec: gpt2, llama, mistral and qwen2.

Keys, and what holds where one is absent or null, are those of the configuration classes of
``transformers``; the model is the one with a language-modelling head. A size that decides the model
must be there, though transformers has defaults for it.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.domain.job import ModelSpec, gpt, llama
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files.reading import located, parse

Layers = Field(ge=1, le=10_000)
Count = Field(ge=1, le=10**9)
MaybeCount = Field(default=None, ge=1, le=10**9)


class _Config(BaseModel):
    """A config.json. Its many keys that change neither size nor work are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Gpt2Config(_Config):
    n_layer: int = Layers
    n_embd: int = Count
    n_head: int = Count
    n_inner: int | None = MaybeCount
    n_positions: int = Count
    vocab_size: int = Count
    tie_word_embeddings: bool = True

    def spec(self, name: str) -> ModelSpec:
        return gpt(
            name=name,
            n_layers=self.n_layer,
            d_model=self.n_embd,
            n_heads=self.n_head,
            d_ff=self.n_inner,
            seq_len=self.n_positions,
            vocab_size=self.vocab_size,
            tied=self.tie_word_embeddings,
        )

    def indivisible(self) -> list[tuple[str, str]]:
        """Pairs of keys of which the first should divide the second but does not."""
        return [("n_head", "n_embd")] if self.n_embd % self.n_head else []


class _LlamaShaped(_Config):
    num_hidden_layers: int = Layers
    hidden_size: int = Count
    intermediate_size: int = Count
    num_attention_heads: int = Count
    num_key_value_heads: int | None = MaybeCount
    head_dim: int | None = MaybeCount
    max_position_embeddings: int = Count
    vocab_size: int = Count
    tie_word_embeddings: bool = False

    def spec(self, name: str) -> ModelSpec:
        return llama(
            name=name,
            n_layers=self.num_hidden_layers,
            d_model=self.hidden_size,
            d_ff=self.intermediate_size,
            n_heads=self.num_attention_heads,
            n_kv_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            seq_len=self.max_position_embeddings,
            vocab_size=self.vocab_size,
            tied=self.tie_word_embeddings,
            **self.biases(),
        )

    def biases(self) -> dict[str, bool]:
        return {}

    def indivisible(self) -> list[tuple[str, str]]:
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        pairs = []
        if self.head_dim is None and self.hidden_size % heads:
            pairs.append(("num_attention_heads", "hidden_size"))
        if kv_heads is not None and heads % kv_heads:
            pairs.append(("num_key_value_heads", "num_attention_heads"))
        return pairs


class LlamaConfig(_LlamaShaped):
    attention_bias: bool = False
    mlp_bias: bool = False

    def biases(self) -> dict[str, bool]:
        return {
            "qkv_bias": self.attention_bias,
            "attention_out_bias": self.attention_bias,
            "mlp_bias": self.mlp_bias,
        }


class MistralConfig(_LlamaShaped):
    num_key_value_heads: int | None = Field(8, ge=1, le=10**9)


class Qwen2Config(_LlamaShaped):
    num_key_value_heads: int | None = Field(32, ge=1, le=10**9)

    def biases(self) -> dict[str, bool]:
        return {"qkv_bias": True}


CONFIGS: dict[str, type[Gpt2Config | _LlamaShaped]] = {
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
    for key, field in kind.model_fields.items():
        if field.is_required() and key not in data:
            raise FileError(f"{where}: no key {key!r}; wanted a whole number, as every {model_type} has")
    config = parse(kind, data, where)
    for divisor, dividend in config.indivisible():
        found, wanted = getattr(config, divisor), getattr(config, dividend)
        raise FileError(f"{where}: {divisor} is {found}; wanted a divisor of {dividend}, which is {wanted}")
    with located(where):
        return config.spec(name)
