"""DeepSpeed's ZeRO-3 on up to 2,240 A100s, as Megatron-LM's authors measured it: FLOP/s of a GPU, by its strategy."""

from collections.abc import Iterator

from dtfm_lab.domain.units import TERA
from dtfm_lab.published.row import Band, KnownMiss, Row
from dtfm_lab.published.selene_plans import ASSUMED, measured
from dtfm_lab.published.sources import published
from dtfm_lab.published.systems.zero_bubble_throughput import megatron_efficiency

BAND = Band.factor(1.3)
ONE_CARD = (
    "measured iterations take as long on twice as many GPUs: three times the parameters in some 66 s, or 185 s of the "
    "larger model, are 16 or 17 GB/s a host, less than one of its eight cards gives; ours gathers over all eight"
)
RATIOS = {384: 1.317, 768: 2.152, 1536: 4.281, 640: 1.412, 1120: 1.986, 2240: 4.041}
"""By number of GPUs, predicted over published."""


@published(
    "zero-3",
    title="DeepSpeed's ZeRO-3, 175 and 530 billion parameters on A100s",
    cite="Narayanan et al., SC 2021, table 2",
    licence="figures of a paper, cited",
    url="https://arxiv.org/abs/2104.04473",
    known_misses={(one.setting, "compute"): KnownMiss(RATIOS[one["gpus"]], ONE_CARD) for one in measured("ZeRO-3")},
)
def zero_3() -> Iterator[Row]:
    """FLOP/s of a GPU by the paper's own count, its equation 3."""
    efficiency = megatron_efficiency()
    for one in measured("ZeRO-3"):
        yield Row(
            group="ZeRO-3",
            setting=one.setting,
            quantity="compute",
            unit="TFLOP/s",
            published=one.published,
            predicted=one.predicted_flop_per_s(efficiency) / TERA,
            band=BAND,
            assumptions=(*ASSUMED, "gathers and scatters one layer ahead, behind the passes"),
            fitted=f"efficiency {efficiency:.3f}, to Zero Bubble's 36 throughputs on A100s",
        )
