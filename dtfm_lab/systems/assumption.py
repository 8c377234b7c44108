"""What a model of a system assumes: an option with the place that says so."""

from dataclasses import dataclass

from dtfm_lab.domain.options import Option


@dataclass(frozen=True, kw_only=True)
class Assumption(Option):
    """The annotation of a strategy's field: what is assumed, in a sentence, and where that is from.

    ``transport: Annotated[str, Assumption(help="A stage waits until what it sends has arrived.", source="...")]``
    """

    source: str
    """A paper's section, a file of the system's repository, or what was measured. Never "so that it fits"."""
