"""Where to train: on your own machines, with rented ones added, only on rented ones, or not at all."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="advice",
    needs=("machines", "elasticity"),
    api={"advise": "dtfm_lab.extensions.advice.advising:advise"},
    commands={
        "advise": (
            "dtfm_lab.extensions.advice.commands:advise",
            "Say where to train: at home, in the cloud, both or not at all.",
        )
    },
    panes={"advice": "dtfm_lab.extensions.advice.pane:advice_step"},
)
