"""What others measured beside our predictions: published rows, their bands, the ledger, and your own rows."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="published",
    needs=("systems", "elasticity"),
    api={"published": "dtfm_lab.published", "reproduce": "dtfm_lab.published.reproducing:reproduce"},
    figures={"ledger": "dtfm_lab.figures.results.ledger:ledger"},
    commands={
        "reproduce": (
            "dtfm_lab.cli.ledgers:reproduce",
            "Lay each number that others published beside our prediction.",
        )
    },
)
