"""Compare others' measurements with our predictions: published rows, their bands, the ledger, and your own rows."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="published",
    needs=("systems", "elasticity"),
    api={
        "published": "dtfm_lab.extensions.published.api",
        "reproduce": "dtfm_lab.extensions.published.reproducing:reproduce",
    },
    figures={"ledger": "dtfm_lab.extensions.published.figures:ledger"},
    commands={
        "reproduce": (
            "dtfm_lab.extensions.published.commands:reproduce",
            "Compare each number that others published with our prediction.",
        )
    },
    moved={"calibrate": "published.calibrate"},
    went={
        "Calibration": "lab.published.Calibration",
        "Ledger": "lab.published.Ledger",
        "papers_table": "lab.published.papers_table(...)",
        "papers_waterfall": "lab.published.papers_waterfall(...)",
    },
)
