"""What training systems would do with a network: strategies, their outcomes, and why one is slower."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="systems",
    panes={"systems": "dtfm_lab.widgets.systems:systems_step"},
)
