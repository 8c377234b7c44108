"""Letters that name a plan's groups before the path has given each its stage."""

from __future__ import annotations

from typing import NamedTuple

from dtfm_lab.domain.plan import Plan


class Lettered(NamedTuple):
    """The letters of a plan's groups: A is the group with the first device of all, then B, C and so on."""

    order: tuple[int, ...]
    """Stages in the order of their groups' letters."""

    def letter(self, stage: int) -> str:
        """The letter of a stage's group: ``A`` to ``Z``, then ``AA``."""
        letters, at = "", self.order.index(stage) + 1
        while at:
            at, letter = divmod(at - 1, 26)
            letters = chr(ord("A") + letter) + letters
        return letters


def lettered(plan: Plan) -> Lettered:
    """The letters of a plan's groups."""
    grid = plan.placement.devices
    return Lettered(tuple(sorted(range(len(grid)), key=lambda stage: int(grid[stage].min()))))
