"""One thing that was taken away from a system's iteration, and the seconds without it."""

from dataclasses import dataclass
from functools import cached_property

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import evaluate

KINDS = ("choice", "placement", "ideal")
"""What the system could do otherwise, where its devices stand, and what no plan reaches."""
SAME = 5e-4
"""Share of an iteration below which a change counts as none."""
MATTERS = 0.01
"""Share of an iteration that something saves at least where it counts as a cause."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Ablation:
    """One thing taken away, and the seconds without it."""

    name: str
    """Short and stable: ``transport``, ``latency``..."""
    kind: str
    """Of ``KINDS``."""
    noun: str
    """In words: ``latency``, ``sends that block``."""
    condition: str
    """What would be so, after *if*: ``links had no latency``."""
    before_s: float
    iteration_s: float
    fits: bool
    """Whether the devices have the memory for it."""
    lacks: str = ""
    """Which memory they lack, where they do."""
    near: Plan
    """The plan without it; its costs are those of the plan with it."""

    @property
    def gain_s(self) -> float:
        """Seconds saved, below 0 where it would take longer."""
        return self.before_s - self.iteration_s

    @property
    def share(self) -> float:
        """Share of the iteration that is saved."""
        return self.gain_s / self.before_s if self.before_s > 0 else 0.0

    @property
    def matters(self) -> bool:
        """Whether it saves a hundredth of the iteration at least."""
        return self.share >= MATTERS

    @cached_property
    def plan(self) -> Plan:
        """The plan without it: to be simulated, drawn, saved."""
        priced = evaluate(self.near.topology, self.near.job, rank_map=self.near.rank_map)
        return priced.changed(iteration_s=self.iteration_s)

    @property
    def sentence(self) -> str:
        """``Latency, 4.2 s (26 %): it would take 12.1 s if links had no latency.``"""
        begin = self.noun[0].upper() + self.noun[1:]
        if abs(self.share) < SAME:
            return f"{begin}, nothing: it would take as long if {self.condition}."
        would = f"it would take {format_s(self.iteration_s)} if {self.condition}"
        lack = "" if self.fits else f", which does not fit: {self.lacks}"
        if self.gain_s < 0:
            return f"{begin}, nothing: {would}, {format_s(-self.gain_s)} more{lack}."
        return f"{begin}, {format_s(self.gain_s)} ({percent(self.share)}): {would}{lack}."


def percent(share: float) -> str:
    """A share in words: ``26 %``, ``0.4 %``."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
