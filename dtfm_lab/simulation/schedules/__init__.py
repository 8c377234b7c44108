"""Pipeline schedules: builders by name, and ``build``, which passes a builder the parts of a plan that its signature
names.

A schedule is a function of the numbers of devices and micro-batches. It is registered in any module of this folder or
by an entry point of the group ``dtfm_lab.schedules``.
"""

from importlib import import_module
from pkgutil import iter_modules

from dtfm_lab.simulation.schedules.adaptive import choose_warmups
from dtfm_lab.simulation.schedules.builtin import (
    build,
    build_named,
    built_for,
    choices_of,
    made_for,
    peak_activations,
    schedules,
)

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")  # registers its schedules
