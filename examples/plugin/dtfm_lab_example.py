"""A plug-in of dtfm_lab: one function or class of each kind, named by the entry points in pyproject.toml.

A model of a training system is in a module of its own: it needs the extension that compares systems.
"""

import numpy as np

from dtfm_lab import Job, Plan, Schedule, Topology, schedules
from dtfm_lab.domain.job import Layer, LayerKind, ModelSpec
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
