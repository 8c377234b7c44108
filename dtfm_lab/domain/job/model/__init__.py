"""Models as rows of layers, and builders of the gpt, llama and moe families."""

from dtfm_lab.domain.job.model.experts import moe
from dtfm_lab.domain.job.model.families import estimated_held, gpt, llama, with_adapters
from dtfm_lab.domain.job.model.spec import (
    BACKWARD_PER_FORWARD,
    BYTES_PER_ELEMENT,
    Layer,
    LayerKind,
    ModelSpec,
    even_shares,
)
