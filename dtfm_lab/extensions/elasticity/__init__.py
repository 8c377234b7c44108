"""Hours in which devices come and go: availabilities, policies, and what a run makes of them."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="elasticity",
    panes={"hours": "dtfm_lab.widgets.hours:hours_step"},
)
