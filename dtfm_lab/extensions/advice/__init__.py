"""Where to train: on your own machines, with rented ones, on rented ones alone, or not at all."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="advice",
    panes={"advice": "dtfm_lab.widgets.advice:advice_step"},
)
