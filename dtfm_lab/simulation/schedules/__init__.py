"""Pipeline schedules by name. ``build`` makes a schedule for a plan.

A schedule's builder is a function of the numbers of devices and micro-batches. It is registered in any module of this
folder or by an entry point of the group ``dtfm_lab.schedules``. ``build`` also passes it the parts of a plan that its
signature names.
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
