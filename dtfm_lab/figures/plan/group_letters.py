"""Names for a plan's groups before the path has given them their stages."""

from __future__ import annotations

from typing import NamedTuple

from dtfm_lab.domain.plan import Plan


class Lettered(NamedTuple):
    """Stages in the order of their group's first device: A, B, C and on."""

    order: tuple[int, ...]

    def letter(self, stage: int) -> str:
        """``A`` to ``Z``, then ``AA``."""
        letters, at = "", self.order.index(stage) + 1
        while at:
            at, letter = divmod(at - 1, 26)
            letters = chr(ord("A") + letter) + letters
        return letters


def lettered(plan: Plan) -> Lettered:
    grid = plan.placement.devices
    return Lettered(tuple(sorted(range(len(grid)), key=lambda stage: int(grid[stage].min()))))
