"""The checks of the missions, one or two modules per lesson. Importing this package registers them all.

The texts that a reader sees (task, hints and worked answer) are in ``texts``, next to this folder.
"""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")  # registers its missions
