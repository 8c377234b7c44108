"""What each training system takes on real workers, beside its prediction."""

from dataclasses import dataclass
from typing import Annotated, Any

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option, part_of
from dtfm_lab.lab.arguments import Progress, newest_of, of_network
from dtfm_lab.lab.plans import nouns
from dtfm_lab.lab.strategies import StrategyOptions
from dtfm_lab.runtime.client.strategy_runs import stream_strategy_runs
from dtfm_lab.runtime.protocol.run_options import RUN_CLOCKS, RunOptions
from dtfm_lab.systems import Budget
from dtfm_lab.systems.strategy_runs import StrategyRuns


@dataclass(frozen=True, kw_only=True)
class StrategyRunOptions(StrategyOptions, RunOptions):
    """Keywords of ``run_strategies``: which systems, how long each may search, and how their plans are run."""

    clock: Annotated[str, Option(help="Clock of all runs, as in ``run``.", choices=RUN_CLOCKS)] = "paced"
    progress: Annotated[Progress | None, Option(help="Called with the runs so far after every system.")] = None


@of_network(StrategyRunOptions)
def run_strategies(
    topology: Topology | str, job: Job | str | None = None, *, progress: Progress | None = None, **options: Any
) -> StrategyRuns:
    """Every system's best plan by the link model, run for real one after the other: predicted beside measured seconds,
    and losses.

    ``.to_frame()``, ``.sentence``, ``.time_to_loss(4.0)``, ``["megatron"].measured``; ``lab.figures.strategy_runs``
    draws them. What workers cannot play, such as tensor parallelism or ZeRO-3, is a row with the reason. A system that
    averages once in 500 iterations runs on a small number of them as ``DiLoCo(every=8)``. ``seed`` is that of the
    searches, the parameters and the batches. Ctrl-C keeps the runs so far.
    """
    given = StrategyRunOptions(**options)
    budget = part_of(Budget, given)
    how = part_of(RunOptions, given)
    return newest_of(stream_strategy_runs(*nouns(topology, job), given.systems, budget, how), progress)
