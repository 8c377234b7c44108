'''The systems that have a model, one file each; importing this package registers them.

A system is a class with one field per assumption. It yields the plans that it lets its user choose from. A complete
example::

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
            """Yield the only plan."""
            n = len(topology)
            shaped = job.with_fields(
                n_stages=n,
                n_replicas=1,
                microbatch=max(1, job.global_batch // (self.microbatches * n)),
                schedule="gpipe",
                checkpointing="stage",
            )
            yield in_rank_order(topology, shaped, np.arange(n), order="pp-dp")

``lab.strategies(network, job, systems="gpipe")`` takes the fastest of the plans that fit the devices' memory. If the
system cannot train the job at all, ``plans`` raises a LabError, and its message replaces the system's bar.
``mathematics = "..."`` says what the system changes about the training itself. A system with its own ``trace`` predicts
seconds other than ``simulate``'s. The texts about the systems in this folder are in ``assumptions.yaml``
(``described``), instead of annotations as above. ``grids`` makes plans in rank order, and ``lab.plan`` searches.
'''

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")  # registers its strategy
