"""Names that our extensions add to ``dtfm_lab``, for editors and type checkers alone: nothing imports this at run time.

At run time a name comes from the ``api`` of its extension. tests/extensions/test_names.py checks that both define the
same names.
"""

from dtfm_lab.extensions.advice.advising import advise
from dtfm_lab.extensions.course import missions
from dtfm_lab.extensions.course.missions import guess, reveal
from dtfm_lab.extensions.elasticity.api import policies
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.availability_files import load_availability
from dtfm_lab.extensions.elasticity.replaying import replay
from dtfm_lab.extensions.published import api as published
from dtfm_lab.extensions.published.reproducing import reproduce
from dtfm_lab.extensions.systems import api as systems
from dtfm_lab.extensions.systems.asked import strategies

__all__ = [
    "Availability",
    "advise",
    "guess",
    "load_availability",
    "missions",
    "policies",
    "published",
    "replay",
    "reproduce",
    "reveal",
    "strategies",
    "systems",
]
