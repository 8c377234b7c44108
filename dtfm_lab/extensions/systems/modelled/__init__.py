'''The systems that have a model, one file each; importing this package registers them.

A system is a class with an assumption for each field, and the plans that it lets its user choose from. This one is
complete::

    from collections.abc import Iterator
    from dataclasses import dataclass
    from typing import Annotated, ClassVar

    import numpy as np

    from dtfm_lab.domain.job import Job
    from dtfm_lab.domain.network import Topology
    from dtfm_lab.domain.plan import Plan
    from dtfm_lab.extensions.systems.strategy import Assumption
    from dtfm_lab.extensions.systems.grids import in_rank_order
    from dtfm_lab.extensions.systems.strategy import Budget, Strategy, strategies

    @strategies.register("gpipe")
    @dataclass(frozen=True, kw_only=True)
    class GPipe(Strategy):
        """GPipe: all devices in one pipeline, in the order of the network."""

        name: ClassVar[str] = "gpipe"
        title: ClassVar[str] = "GPipe"
        cite: ClassVar[str] = "Huang et al., NeurIPS 2019"

        microbatches: Annotated[
            int,
            Assumption(
                help="Micro-batches for each stage.",
                least=1,
                source="Huang et al. 2019, section 2.3: with four times as many as stages the bubble hardly counts",
            ),
        ] = 4

        def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
            """The only one."""
            n = len(topology)
            shaped = job.with_fields(
                n_stages=n,
                n_replicas=1,
                microbatch=max(1, job.global_batch // (self.microbatches * n)),
                schedule="gpipe",
                checkpointing="stage",
            )
            yield in_rank_order(topology, shaped, np.arange(n), order="pp-dp")

``lab.strategies(network, job, systems="gpipe")`` takes the fastest of the plans that fit the devices' memory. Where the
system cannot train the job at all, ``plans`` raises a LabError, whose line is the reason that is shown in place of its
bar. ``mathematics = "..."`` says what it changes of the training itself, and a ``trace`` of its own predicts seconds
that are not ``simulate``'s. What is said of the systems of this folder stands in ``assumptions.yaml``
(``described``), in place of the annotations above. ``grids`` has plans in rank order, ``lab.plan`` those of a search.
'''

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")  # registers its strategy
