"""The options of a run, each defined once for ``lab.start`` and ``lab.run``, the command line and the Lab.

A field that is added to ``RunSettings`` is in all of them, and in the ``RunSpec`` that every process of a run gets.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, get_args

from dtfm_lab.domain.job import ModelSpec
from dtfm_lab.domain.network import QUEUEING, Topology
from dtfm_lab.domain.options import Option, check_options
from dtfm_lab.domain.trace import Clock

RUN_CLOCKS = tuple(name for name in get_args(Clock) if name != "model")
RUNS_ON = ("cpu", "cuda")
CARRIERS = ("sockets", "groups")
RUN_DTYPES = ("fp32", "fp64")
"""Precisions that workers compute in."""
LARGEST_SEED = 2**40
"""A generator's seed is made from it, a layer's or an iteration's number and large factors, and has 64 bits."""

AnyPath = str | os.PathLike[str]
ITERATIONS = Option(help="Iterations to train: 20 where not given, 5 on the paced clock, which waits.", least=1)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The options that all processes of a run get.

    Raises UnknownName or LabError where one is out of range.
    """

    iterations: Annotated[int | None, ITERATIONS] = None
    clock: Annotated[
        str,
        Option(
            help="How seconds are counted: virtual (each worker's logical clock adds its own CPU time, without "
            "sleeping), paced (real time, computations padded to their device's) or real (wall time, real links).",
            choices=RUN_CLOCKS,
        ),
    ] = "virtual"
    seed: Annotated[int, Option(help="Seed of parameters and batches.", least=0, most=LARGEST_SEED)] = 0
    learning_rate: Annotated[float, Option(help="Learning rate of AdamW.", above=0)] = 2e-3
    text: Annotated[
        AnyPath | None, Option(help="File to train on, its last tenth held out; the lab's own text where not given.")
    ] = None
    time_scale: Annotated[
        float | None,
        Option(
            help="Paced clock: wall seconds per second of the run; chosen from the profile where not given.",
            unit="wall seconds a second",
            above=0,
        ),
    ] = None
    queueing: Annotated[
        str,
        Option(
            help="Which messages wait for each other: pairs (each directed pair of devices is a link) or, on the "
            "virtual clock, cards (each device has one network card).",
            choices=QUEUEING,
        ),
    ] = "pairs"
    emulated: Annotated[
        AnyPath | Topology | None,
        Option(
            help="Another network of as many devices, by name, file or Topology, whose links are emulated in place of "
            "the plan's; predictions do not consider it."
        ),
    ] = None
    stand_in: Annotated[
        AnyPath | ModelSpec | None,
        Option(
            help="A model by name, config.json or ModelSpec that is trained in fp32 in place of the job's; messages, "
            "and on the paced clock computations, keep the job's sizes. Where not given: a small one, if the job's own "
            "cannot be trained here."
        ),
    ] = None
    runs_on: Annotated[str, Option(help="What workers compute on: cpu or cuda.", choices=RUNS_ON)] = "cpu"
    carrier: Annotated[
        str | None,
        Option(
            help="What contents of messages cross: sockets, or groups (torch.distributed process groups of two: gloo, "
            "or NCCL on GPUs on the real clock). Where not given: groups on GPUs on the real clock, sockets else.",
            choices=CARRIERS,
        ),
    ] = None
    checkpoint_folder: Annotated[AnyPath | None, Option(help="Folder for checkpoints.", flag="checkpoint")] = None
    checkpoint_every: Annotated[
        int, Option(help="Iterations between checkpoints; 0: only after the last.", unit="iterations")
    ] = 0
    resume_from: Annotated[
        AnyPath | None,
        Option(
            help="Folder of a checkpoint, or of several, the newest of which the run continues. The model must be the "
            "checkpoint's; the cut and the placement are free; another text, seed, batch or rate gives a warning.",
            flag="resume",
        ),
    ] = None
    evaluate_every: Annotated[
        int, Option(help="Iterations between evaluations on held-out text; 0: only after the last.", unit="iterations")
    ] = 0
    sample_bytes: Annotated[
        int, Option(help="Bytes of text that the trained model writes at the end.", unit="bytes", flag="sample")
    ] = 0

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, kw_only=True)
class RunOptions(RunSettings):
    """All options of a run: what its processes get, and how much of the plan runs."""

    workers: Annotated[
        int | Sequence[int] | None,
        Option(
            help="How much of the plan runs: at most so many workers, or (stages, pipelines). Where not given: all of "
            "a plan of up to 32, and 8 of a larger one. All stages and as many pipelines as fit run, or else the first "
            "stages of two; devices, links, layers and micro-batches are the plan's."
        ),
    ] = None
