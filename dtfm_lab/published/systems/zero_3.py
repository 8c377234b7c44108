"""DeepSpeed's ZeRO-3 on up to 2,240 A100s, as Megatron-LM's authors measured it: FLOP/s of a GPU, by its strategy."""

from collections.abc import Iterator

from dtfm_lab.published.evidence import Evidence
from dtfm_lab.published.row import Row
from dtfm_lab.published.selene_plans import measured
from dtfm_lab.published.sources import published


@published(
    "zero-3",
    title="DeepSpeed's ZeRO-3, 175 and 530 billion parameters on A100s",
    cite="Narayanan et al., SC 2021, table 2",
    licence="figures of a paper, cited",
    url="https://arxiv.org/abs/2104.04473",
)
def zero_3() -> Iterator[Row]:
    """FLOP/s of a GPU by the paper's own count, its equation 3."""
    for one in measured("ZeRO-3"):
        yield one.row("ZeRO-3", Evidence.TRANSFERRED, "gathers and scatters one layer ahead, behind the passes")
