'''The publications, one file each; importing this package registers them.

A file reads the published numbers from ``published/data`` and predicts each with the lab's public functions. A complete
example::

    from collections.abc import Iterator
    from dtfm_lab.extensions.published.row import Evidence
    from dtfm_lab.extensions.published.row import Row
    from dtfm_lab.extensions.published.sources import published
    from dtfm_lab.extensions.published.row import numbers

    @published(
        "gpipe",
        title="GPipe, throughput",
        cite="Huang et al., NeurIPS 2019, table 2",
        licence="figures of a paper, cited",
    )
    def gpipe() -> Iterator[Row]:
        """Speed with several GPUs over the speed with two."""
        for line in numbers("gpipe.csv"):
            stages, microbatches = int(line["stages"]), int(line["microbatches"])
            yield Row(
                group="GPipe",
                setting=f"{stages} stages, {microbatches} micro-batches",
                quantity="ratio",
                unit="",
                published=float(line["speedup"]),
                predicted=speedup_of(stages, microbatches),
                evidence=Evidence.PURE,
                assumptions=("links are free",),
            )

One rule for all sources gives a row its band, by class and quantity (``published.row``). ``goals={"GPipe": 0.06}``
states the maximum mean absolute error of a group's iterations or throughputs. A row that is known to be outside its
band is listed in ``data/known_misses.csv`` with a reason. It stays red in the ledger, and tests fail only if it gets
worse. A fit is judged on rows that it did not see (``calibration`` leaves one out).
'''

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")  # registers its source
