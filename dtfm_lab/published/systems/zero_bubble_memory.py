"""Zero Bubble, table 4: peak memory of the worst device, of 1F1B and of interleaved 1F1B."""

from collections.abc import Iterator

from dtfm_lab.domain.units import GB, GiB
from dtfm_lab.published.evidence import Evidence
from dtfm_lab.published.row import Row
from dtfm_lab.published.sources import published
from dtfm_lab.published.tables import numbers
from dtfm_lab.published.zero_bubble_plans import plan_of
from dtfm_lab.simulation.memory import memory


@published(
    "zero-bubble-memory",
    title="Zero Bubble, peak memory",
    cite="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, table 4",
    licence="figures of a paper, cited",
    url="https://arxiv.org/abs/2401.10241",
)
def zero_bubble_memory() -> Iterator[Row]:
    """Gigabytes of the worst device, for four models and two schedules."""
    for line in numbers("zero_bubble_memory.csv"):
        for schedule, column in (("1F1B", "one_f_one_b_gb"), ("1F1B-I", "interleaved_gb")):
            peak_bytes = int(memory(plan_of(line["model"], schedule)).peak_bytes.max())
            measured = float(line[column])
            yield Row(
                group="Zero Bubble",
                setting=f"{line['model']}, {line['stages']} stages, {schedule}",
                quantity="memory",
                unit="GB",
                published=measured,
                predicted=peak_bytes / GB,
                evidence=Evidence.PURE,
                assumptions=(
                    "attention unfused",
                    "fp16 gradients, as the paper's scripts name --fp16 and not --accumulate-allreduce-grads-in-fp32",
                    "embedding and head count as a layer each in the cut",
                ),
                note=f"published in whole GB; were they GiB, {peak_bytes / GiB / measured:.2f} times",
            )
