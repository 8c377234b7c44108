"""A plug-in of dtfm_lab: the model of a training system, which ``lab.strategies`` asks beside the others."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from dtfm_lab import evaluate
from dtfm_lab.extensions.systems.api import Assumption, Strategy


@dataclass(frozen=True, kw_only=True)
class OnePipeline(Strategy):
    """All devices in one pipeline, in the order of the file."""

    name: ClassVar[str] = "one-pipeline"
    title: ClassVar[str] = "One pipeline"
    cite: ClassVar[str] = "this example"

    schedule: Annotated[
        str, Assumption(help="Backwards begin early.", choices=("1f1b", "gpipe"), source="a choice of the example")
    ] = "1f1b"

    def plans(self, topology, job, budget):
        """With micro-batches of one sequence."""
        shaped = job.with_fields(n_stages=len(topology), n_replicas=1, microbatch=1, schedule=self.schedule)
        yield evaluate(topology, shaped, stages=[[device] for device in range(len(topology))])
