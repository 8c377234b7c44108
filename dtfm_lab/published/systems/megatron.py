"""Megatron-LM on up to 3,072 A100s: FLOP/s of a GPU, by its strategy with the grids that were measured.

The efficiency of matrix products is another publication's, that of Zero Bubble's rows, of the same code on the same
GPU; everything else is of the data sheets.
"""

from collections.abc import Iterator

from dtfm_lab.domain.units import TERA
from dtfm_lab.published.row import Band, Row
from dtfm_lab.published.selene_plans import ASSUMED, measured
from dtfm_lab.published.sources import published
from dtfm_lab.published.systems.zero_bubble_throughput import megatron_efficiency

WITHOUT_MODEL_PARALLELISM, WITH_IT = Band.share(0.1), Band.share(0.15)


@published(
    "megatron-lm",
    title="Megatron-LM, 1.7 to 1,008 billion parameters on 32 to 3,072 A100s",
    cite="Narayanan et al., SC 2021, tables 1 and 2",
    licence="figures of a paper, cited",
    url="https://arxiv.org/abs/2104.04473",
)
def megatron() -> Iterator[Row]:
    """FLOP/s of a GPU by the paper's own count, its equation 3."""
    efficiency = megatron_efficiency()
    for one in measured("Megatron-LM"):
        yield Row(
            group="Megatron-LM",
            setting=one.setting,
            quantity="compute",
            unit="TFLOP/s",
            published=one.published,
            predicted=one.predicted_flop_per_s(efficiency) / TERA,
            band=WITHOUT_MODEL_PARALLELISM if one["tensor_parallel"] == 1 else WITH_IT,
            assumptions=(*ASSUMED, "a ring, not overlapped"),
            fitted=f"efficiency {efficiency:.3f}, to Zero Bubble's 36 throughputs on A100s",
            note="the efficiency of another paper, two years younger, with models up to 28 billion parameters",
        )
