"""Streaming DiLoCo: fragments of the model are averaged in turn, beside the next iterations."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.systems.assumption import Assumption
from dtfm_lab.systems.modelled.diloco import PRECISIONS, DiLoCo
from dtfm_lab.systems.strategy import strategies


@strategies.register("streaming-diloco")
@dataclass(frozen=True, kw_only=True)
class StreamingDiLoCo(DiLoCo):
    """Streaming DiLoCo: fragments of the model are averaged in turn, beside the next iterations.

    The paper's fragments are of whole layers, interleaved; a job's are equal parts of every device's parameters, as
    many as come nearest to the paper's and divide H. Workers and memory are those of ``DiLoCo``.
    """

    name: ClassVar[str] = "streaming-diloco"
    title: ClassVar[str] = "Streaming DiLoCo"
    cite: ClassVar[str] = "Douillard et al. 2025"
    url: ClassVar[str] = "https://arxiv.org/abs/2501.18512"
    mathematics: ClassVar[str] = (
        "workers step alone, fragments are averaged in turn and late, and mixed with what workers have become: a loss "
        "may need more iterations"
    )

    every: Annotated[
        int,
        Assumption(
            help="Iterations from one average of a fragment to its next (H).",
            unit="iterations",
            least=2,
            source="Streaming DiLoCo, the simulation of table 4: 100",
        ),
    ] = 100
    precision: Annotated[
        str,
        Assumption(
            help="Numbers of the averaged changes on their way; fp4 as published would be half of int8.",
            choices=PRECISIONS,
            source="Streaming DiLoCo, section 2.4, sends fp4; int8 is the nearest that jobs have, twice the bytes",
        ),
    ] = "int8"
    fragment_layers: Annotated[
        int,
        Assumption(
            help="Layers of a fragment, as nearly as whole numbers of fragments divide H.",
            unit="layers",
            least=1,
            source="Streaming DiLoCo, section 3: three layers a fragment",
        ),
    ] = 3
    delay: Annotated[
        int,
        Assumption(
            help="Iterations beside which a fragment travels before its average is due (tau); 0 does not overlap.",
            unit="iterations",
            least=0,
            source="Streaming DiLoCo, section 2.3: tau is 1 or more; torchft's fragment_sync_delay",
        ),
    ] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delay > self.every:
            raise LabError(
                f"system {self.name}: delay is {self.delay} with every {self.every}; wanted at most {self.every}, as a "
                f"fragment is averaged once in so many iterations"
            )

    def fragments(self, n_blocks: int) -> int:
        """Fragments of a model with so many blocks: of the numbers that divide H, the nearest to the paper's."""
        slots = self.every // max(self.delay, 1)
        wanted = n_blocks / self.fragment_layers
        divide = [n for n in range(1, slots + 1) if not slots % n]
        return min(divide, key=lambda n: (abs(math.log(n / wanted)), n))

    def trained(self, job: Job) -> Job:
        """The job as the system trains it, whatever its shape."""
        # H is kept a multiple of the delay: the last few iterations of a longer one would be nobody's
        every = self.every // max(self.delay, 1) * max(self.delay, 1)
        fragments = self.fragments(job.modelled().n_blocks)
        local = super().trained(job)
        return local.with_fields(synchronise_every=every, fragments=fragments, fragment_delay=self.delay)
