"""Megatron-LM on up to 3,072 A100s: FLOP/s of a GPU, by its strategy with the grids that were measured.

The lab's efficiency of A100s is fitted to these rows, so they say how well it fits and nothing more.
"""

from collections.abc import Iterator

from dtfm_lab.published.evidence import Evidence
from dtfm_lab.published.row import Row
from dtfm_lab.published.selene_plans import measured
from dtfm_lab.published.sources import published


@published(
    "megatron-lm",
    title="Megatron-LM, 1.7 to 1,008 billion parameters on 32 to 3,072 A100s",
    cite="Narayanan et al., SC 2021, tables 1 and 2",
    licence="figures of a paper, cited",
    url="https://arxiv.org/abs/2104.04473",
)
def megatron() -> Iterator[Row]:
    """FLOP/s of a GPU by the paper's own count, its equation 3."""
    for one in measured("Megatron-LM"):
        yield one.row("Megatron-LM", Evidence.FITTED, "a ring, not overlapped")
