"""How each objective of a search is written on the screen: its noun, its numbers, and what a bound on it says."""

from dataclasses import dataclass

from dtfm_lab.domain.units import FAR_TIMES, LOOSE_TIMES, TIMES, format_s, format_share, format_times
from dtfm_lab.planning.search import PROVEN


@dataclass(frozen=True)
class ObjectiveWords:
    """The words of one objective. The page formats its numbers by ``unit``."""

    objective: str
    choice: str
    """Its name in the menu of objectives."""
    noun: str
    title: str
    """The heading of the search pane's curve of best values."""
    unit: str = "s"
    better: str = "faster"
    """The word in "no plan is ... than the bound": faster, cheaper, or better for an objective that users add."""

    @property
    def bound_label(self) -> str:
        """The label of the bound in a legend."""
        return "lower bound" if self.objective == "communication" else f"lower bound: no plan is {self.better}"

    def words(self, value: float) -> str:
        """Return a value as text with its unit."""
        return format_dollars(value) if self.unit == "$" else format_s(value)

    def bound_line(self, bound: float) -> str:
        """Return what the bound says about every plan; empty if the bound is 0, which says nothing."""
        return f"no plan is {self.better} than {self.words(bound)}" if bound > 0 else ""

    def gap_words(self, best: float, bound: float) -> str:
        """Return how far a value is from the bound, and what the bound proves."""
        if not bound > 0:
            return "no bound yet"
        proven = best - bound < PROVEN * best
        if self.objective != "communication":
            if proven:
                return f"no plan is {self.better}"
            times = best / bound
            most = f"at most {format_times(times)} times {self.better} with any plan of this job"
            return f"{most if times <= LOOSE_TIMES else 'the bound is loose'}; {self.bound_line(bound)}"
        # Only the communication cost has a bound of one shape; times have one of every plan.
        if proven:
            return f"{self.noun} proven best in this shape"
        times = best / bound
        how = f"{times:.0f} times the bound" if times > TIMES else f"{percent(times - 1)} above the bound"
        how = "far above the bound" if times > FAR_TIMES else how
        return f"{how}; the bound says nothing cheaper than {self.words(bound)} exists in this shape"


COST = "communication cost"
MEASURES = {
    measure.objective: measure
    for measure in (
        ObjectiveWords("iteration", "seconds an iteration", "iteration", "Seconds an iteration"),
        ObjectiveWords(
            "price", "dollars a billion tokens", "price of a billion tokens", "Dollars a billion tokens", "$", "cheaper"
        ),
        ObjectiveWords("communication", COST, COST, COST.capitalize(), better="cheaper"),
    )
}


def measure_of(objective: str) -> ObjectiveWords:
    """Return the words of an objective. An objective that a user has registered goes by its name, and is in seconds."""
    other = ObjectiveWords(objective, objective, objective, objective.capitalize(), better="better")
    return MEASURES.get(objective, other)


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal, or ``less than 0.1 %`` for any share below that."""
    return format_share(share) if share >= 1e-3 else "less than 0.1 %"


def format_dollars(dollars: float) -> str:
    """Return ``$1,234``, ``$12.30``, ``$0.0123``."""
    if abs(dollars) >= 100 or dollars == 0:
        return f"${dollars:,.0f}"
    return f"${dollars:.2f}" if abs(dollars) >= 1 else f"${dollars:.3g}"


def format_count(number: float) -> str:
    """Return ``871``, ``10.5k``, ``1.2M``, ``3.1G``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
