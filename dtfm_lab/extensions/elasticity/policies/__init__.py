"""How runs answer to a fleet that changes: a module for each family of policies, all found by themselves."""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")
