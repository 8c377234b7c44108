"""A plug-in of dtfm_lab: one function or class of each kind, named by the entry points in pyproject.toml."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from dtfm_lab import Job, Plan, Schedule, Topology, evaluate, schedules
from dtfm_lab.domain.job import Layer, LayerKind, ModelSpec
from dtfm_lab.extensions.systems.api import Assumption, Strategy
from dtfm_lab.files.reading import read_text, write_text
from dtfm_lab.planning import Generation


def file_order(problem, rng):
    """Devices in the order of the file, once."""
    grid = problem.rematched(problem.grid(np.arange(problem.n_devices)))
    yield Generation(grid, problem.cost(grid), evaluations=1)


def by_latency(n_stages: int, n_microbatches: int, *, plan: Plan) -> Schedule:
    """GPipe where a message takes longer than a tenth of a second on its way, else 1F1B."""
    slow = plan.topology.latency_s.max() > 0.1
    built = schedules["gpipe" if slow else "1f1b"](n_stages, n_microbatches)
    return Schedule("by-latency", n_microbatches, built.programs)


def ring(n: int = 8, name: str = "ring-of-eight") -> Topology:
    """Devices whose latency grows with their distance on a ring."""
    steps = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return Topology.from_matrices(10.0 * np.minimum(steps, n - steps), np.ones((n, n)), name=name)


class RingFormat:
    """A file that holds the number of devices of a ring."""

    suffixes = (".ring",)

    @staticmethod
    def read(path):
        return ring(int(read_text(path)), path.stem)

    @staticmethod
    def write(topology, path):
        return write_text(path, str(len(topology)))


def mlp(*, n_layers: int, width: int, name: str = "mlp") -> ModelSpec:
    """Fully connected layers alone."""
    layer = Layer(kind=LayerKind.BLOCK, parameters=width**2, forward_flop=2.0 * width**2, output_elements=width)
    sizes = {"d_model": width, "n_heads": 1, "seq_len": 1, "vocab_size": 1}
    return ModelSpec(name=name, layers=(layer,) * n_layers, tied=False, family="mlp", **sizes)


SHAPE = {"n_stages": 4, "n_replicas": 2, "global_batch": 16, "microbatch": 2}
MLP_SMALL = Job(name="mlp-small", model=mlp(n_layers=8, width=512), **SHAPE)


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
