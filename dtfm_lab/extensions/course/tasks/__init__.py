"""What wins the missions of the lessons, one module or two a lesson; importing this registers them all.

What a reader sees of a mission, its task, hints and worked answer, is in ``texts`` beside this folder.
"""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")  # registers its missions
