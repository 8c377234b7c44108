"""What each training system would do with a network and a job."""

from dataclasses import dataclass
from typing import Annotated, Any

from dtfm_lab import systems as models
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option
from dtfm_lab.lab.arguments import Progress, newest_of, of_network
from dtfm_lab.lab.executors import AnyExecutor, closed, opened
from dtfm_lab.lab.plans import nouns
from dtfm_lab.systems import Budget, Outcomes
from dtfm_lab.systems.choosing import Asked


@dataclass(frozen=True, kw_only=True)
class StrategyOptions(Budget):
    """Keywords of ``strategies``."""

    systems: Annotated[
        Asked,
        Option(help="Systems by name, or with assumptions of one's own; all by default."),
    ] = None
    progress: Annotated[Progress | None, Option(help="Called with the outcomes so far after every system.")] = None
    executor: Annotated[AnyExecutor | None, Option(help="Chooses on its workers, as in ``sweep``.")] = None


@of_network(StrategyOptions)
def strategies(
    topology: Topology | str,
    job: Job | str | None = None,
    *,
    progress: Progress | None = None,
    executor: AnyExecutor | None = None,
    **options: Any,
) -> Outcomes:
    """What each training system would do with these devices: its best plan by the link model, and why it takes so long.

    Every system trains the job's model on the job's batch; cut, placement, schedule and messages are its own, as
    ``lab.systems.strategies`` models it. ``.sentence``, ``.to_frame()``, ``["megatron"].plan``; in a notebook it shows
    itself, and ``lab.figures.strategies`` draws it. Some of the systems, or one with another assumption:
    ``systems=["fsdp", lab.systems.variant("megatron", transport="overlapped")]``. Ctrl-C keeps the systems so far.
    """
    with opened(executor) as pool:
        systems = options.pop("systems", None)
        found = models.stream_outcomes(*nouns(topology, job), systems, Budget(**options), pool)
        with closed(found):
            return newest_of(found, progress)
