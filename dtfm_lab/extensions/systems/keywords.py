"""Keywords of ``lab.strategies``, as editors and type checkers read them.

Written by tools/keywords.py from the options that each class names: change those, and run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Required, TypedDict

if TYPE_CHECKING:
    from dtfm_lab.extensions.systems.choosing import Asked
    from dtfm_lab.lab.arguments import Progress
    from dtfm_lab.simulation.executors import AnyExecutor


class StrategyKeywords(TypedDict, total=False):
    """Keywords of ``lab.strategies``, from `dtfm_lab.extensions.systems.asked.StrategyOptions`."""

    seconds: float
    """Search time of each system that searches. More than 0 s. Default: 2."""
    steps: int | None
    """Generations of each search, instead of seconds. Makes results reproducible. 1 or more generations."""
    seed: int
    """Seed of searches and of random choices. 0 or more. Default: 0."""
    efficiency: float | None
    """Share of its peak that a device reaches. By default it follows from the GPU and the matrix shapes. More
    than 0 and at most 1."""
    queueing: str
    """Which messages wait for each other: those between the same two devices, or on the same NIC. One of pairs,
    nics. Default: pairs."""
    systems: Asked
    """Systems by name, or with your own assumptions; all by default."""
    flags: str | None
    """A launch as text, asked first: Megatron-LM's flags or script, DeepSpeed's JSON, torchtitan's TOML."""
    progress: Progress | None
    """Called with the outcomes so far after every system."""
    executor: AnyExecutor | None
    """Chooses plans on its workers, as in ``sweep``."""


class CrossingKeywords(StrategyKeywords, total=False):
    """Keywords of ``lab.strategies`` over one quantity, from `dtfm_lab.extensions.systems.asked.CrossingOptions`."""

    over: Required[str]
    """What varies: bandwidth, latency, batch or compute. One of bandwidth, latency, batch, compute."""
    values: Any
    """Values of what varies: a list, or a tuple of lowest, highest and how many."""
    between: str
    """Which links change their bandwidth or latency. The others stay as they are. One of hosts, regions. Default:
    hosts."""
    precision: float
    """Crossings are bracketed to within this share of their value. More than 0 and at most 1. Default: 0.05."""
    mathematics: bool
    """Let systems that change the training's mathematics count as the fastest, too. Default: False."""
