"""Missions in which students write distributed PyTorch: a ring all-reduce, and GPipe over two processes."""

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from dtfm_lab import lab
from dtfm_lab.extensions.course.checks import MissionsOf, TextValues, fresh_cases, require, value_of
from dtfm_lab.extensions.course.mission import Given
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate

rings = MissionsOf("19_own_all_reduce")
pipelines = MissionsOf("20_own_pipeline")

NUMBER_BYTES = 8
"""Bytes of a number in fp64."""


def results_of(function: Callable[..., Any], *arguments: Any, **given: Any) -> list[tuple[Any, list[tuple[str, int]]]]:
    """Return what each process returned, with its messages. Raises NotYet unless the function is one that
    ``lab.missions.distributed`` returned."""
    found = value_of(lambda *each: function(*each, **given), *arguments)
    is_list = isinstance(found, (list, tuple)) and all(isinstance(each, (list, tuple)) for each in found)
    require(is_list and all(len(each) == 2 for each in found), "wanted lab.missions.distributed(your function)")
    return [(value, [(str(kind), int(n_bytes)) for kind, n_bytes in messages]) for value, messages in found]


@rings.mission("own-ring", takes=FunctionType)
def own_ring(function: Callable[..., Any], given: Given) -> TextValues:
    rng = fresh_cases()
    n, size = 4, 4 * int(rng.integers(20, 50))
    numbers = rng.normal(size=(n, size))
    # Other numbers each time, so that they cannot be written into the function.
    done = results_of(function, n, [{"numbers": each.tolist()} for each in numbers])
    require(len(done) == n, f"{len(done)} processes returned a result; wanted {n}")
    for rank, (value, _) in enumerate(done):
        is_right = isinstance(value, (list, tuple)) and np.shape(value) == (size,)
        require(is_right, f"process {rank} returned {type(value).__name__}; wanted the {size} means")
        require(bool(np.allclose(value, numbers.mean(axis=0))), f"process {rank} returned numbers other than the mean")
    # Only a ring sends exactly these bytes, whatever the function is called.
    wanted = 2 * (n - 1) * size // n * NUMBER_BYTES
    for rank, (_, messages) in enumerate(done):
        sent = sum(n_bytes for kind, n_bytes in messages if kind == "send")
        require(
            sent == wanted,
            f"process {rank} sends {sent:,} bytes; a ring sends {wanted:,} from each: 2 (N - 1) messages of an N-th",
        )
    return {"sent": wanted, "n": n}


ITERATIONS = 3
"""Iterations of the run whose losses are compared with the lab's."""
MICROBATCHES = 4
"""Micro-batches per iteration of this run."""
TOLERANCE = 1e-4
"""Maximum relative difference between losses, because sums in another order round differently."""


def losses_of_the_lab(seed: int) -> Sequence[float]:
    """Return the losses of a run of the lab: tiny in two stages, four micro-batches of two sequences, GPipe."""
    job = load_job("tiny", n_stages=2, n_replicas=1, global_batch=8, microbatch=2)
    plan = evaluate(lab.load_topology("lecture-hall").subset(range(2)), job, stages=[[0], [1]])
    return tuple(lab.run(plan, "gpipe", iterations=ITERATIONS, seed=seed).context.losses)


@pipelines.mission("own-gpipe", takes=FunctionType)
def own_gpipe(function: Callable[..., Any], given: Given) -> TextValues:
    seed = int(fresh_cases().integers(1, 1000))
    done = results_of(function, 2, [], seed=seed, iterations=ITERATIONS)
    require(len(done) == 2, f"{len(done)} processes returned a result; wanted 2")
    (_, first), (losses, _) = done
    kinds = [kind for kind, _ in first]
    wanted_kinds = (["send"] * MICROBATCHES + ["recv"] * MICROBATCHES) * ITERATIONS
    require(
        kinds == wanted_kinds,
        f"the first process begins with {', '.join(kinds[:4]) or 'nothing'}; GPipe sends all {MICROBATCHES} forwards "
        "of an iteration, then receives the same number of gradients",
    )
    is_right = isinstance(losses, (list, tuple)) and np.shape(losses) == (ITERATIONS,)
    require(is_right, f"the last process returned {losses!r:.60}; wanted {ITERATIONS} losses")
    # The lab's own run of the same seed trains the same, apart from rounding.
    wanted = losses_of_the_lab(seed)
    for iteration, (found, want) in enumerate(zip(losses, wanted, strict=True)):
        require(
            abs(found - want) <= TOLERANCE * want,
            f"the loss of iteration {iteration} is {found:.5f}; a run of the lab with this seed has {want:.5f}",
        )
    return {"losses": ", ".join(f"{each:.4f}" for each in losses)}
