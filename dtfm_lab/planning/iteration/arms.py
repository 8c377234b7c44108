"""One shape under search: its best plan so far, and the annealing that improves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.units import IntArray

if TYPE_CHECKING:
    from dtfm_lab.planning.iteration.kernels.annealing import Freedom
    from dtfm_lab.planning.iteration.kernels.state import State
    from dtfm_lab.planning.iteration.kernels.tables import Tables


RandomState = npt.NDArray[np.uint64]
NO_RANDOM: RandomState = np.zeros(1, dtype=np.uint64)
"""For annealing without moves."""


@dataclass(frozen=True, eq=False)
class Found:
    """A plan of one shape as the kernels left it."""

    row: IntArray
    """(N,) the flattened grid, then the idle devices."""
    blocks: IntArray
    shares: IntArray
    ahead: IntArray
    value: float
    """The objective: estimated or, once ``replayed``, exact."""
    lacks: float
    """What it lacks in memory and below limits; 0 where it is valid."""
    replayed: bool = False

    @property
    def price(self) -> float:
        """The objective, higher for what the plan lacks, for comparing plans that are not valid yet."""
        return self.value * (1 + 10 * self.lacks)


def new_state(n_stages: int, n_replicas: int, n_devices: int) -> State:
    """A state of this shape with everything still to be set."""
    from dtfm_lab.planning.iteration.kernels.state import State

    n, r = n_stages, n_replicas
    wholes, reals = np.zeros(n_devices + 2 * n + r, dtype=np.int64), np.zeros(5 * n + 5 * r + 3 * n * r)
    row, blocks, shares, ahead = np.split(wholes, np.cumsum([n_devices, n, r]))
    stage, pipe, cell = np.split(reals, np.cumsum([5 * n, 5 * r]))
    return State(
        wholes=wholes,
        reals=reals,
        row=row,
        grid=row[: n * r].reshape(n, r),
        blocks=blocks,
        shares=shares,
        ahead=ahead,
        stage=stage.reshape(5, n),
        pipe=pipe.reshape(5, r),
        cell=cell.reshape(3, r, n),
        scratch=np.zeros((9, n)),
        lots=np.zeros((3, r)),
    )


class Arm:
    """A shape with one size of micro-batches, and what was found for it."""

    def __init__(
        self,
        tables: Tables,
        shape: tuple[int, int],
        microbatch: int,
        recompute: bool,
        freedom: Freedom,
        ahead: Callable[[int], IntArray | None],
    ) -> None:
        self.tables, self.shape, self.microbatch, self.recompute = tables, shape, microbatch, recompute
        self.freedom = freedom
        self.best: Found | None = None
        self.rows: list[Found] | None = None
        """Structured placements to begin with, those not used yet; None before they are made."""
        self.slices = 0
        """Annealings so far."""
        self.work = 0.0
        """Their lengths together, in nominal ones."""
        self._given_ahead = ahead(shape[0])
        self._states: list[State] = []

    @property
    def states(self) -> list[State]:
        """Three states of this shape, made when first used."""
        if not self._states:
            self._states = [new_state(*self.shape, self.tables.device.shape[1]) for _ in range(3)]
        return self._states

    def even_shares(self) -> IntArray:
        each, spare = divmod(self.tables.n_microbatches, self.shape[1])
        return np.array([each + (r < spare) for r in range(self.shape[1])], dtype=np.int64)

    def assessed(
        self,
        row: IntArray,
        blocks: IntArray,
        factor: float,
        *,
        shares: IntArray | None = None,
        ahead: IntArray | None = None,
        exact: bool = False,
    ) -> Found:
        """A plan, priced; with a factor of 0 its forwards ahead stay as given."""
        begin = Found(
            row,
            blocks,
            self.even_shares() if shares is None else shares,
            self._first_ahead() if ahead is None else ahead,
            np.inf,
            np.inf,
        )
        return self.annealed(begin, 1.0, 1.0, 0, NO_RANDOM, exact=exact, factor=factor)

    def annealed(
        self,
        found: Found,
        hot: float,
        cold: float,
        n_moves: int,
        random: RandomState,
        *,
        exact: bool,
        factor: float = 0.0,
    ) -> Found:
        """The best plan that annealing from this one finds."""
        from dtfm_lab.planning.iteration.kernels.annealing import anneal

        trial, now, best = self.states
        trial.row[:], trial.blocks[:] = found.row, found.blocks
        trial.shares[:], trial.ahead[:] = found.shares, found.ahead
        settings = exact, factor, hot, cold, n_moves
        value, lacks = anneal(self.tables, trial, now, best, self.freedom, *settings, random)
        return _taken(best, float(value), float(lacks), replayed=exact)

    def keep(self, found: Found) -> bool:
        """Whether it is the arm's best, which it then becomes; a valid plan beats all others."""
        best = self.best
        if best is not None and (found.lacks > 0, found.price) >= (best.lacks > 0, best.price):
            return False
        self.best = found
        return True

    def _first_ahead(self) -> IntArray:
        return np.arange(self.shape[0])[::-1].copy() if self._given_ahead is None else self._given_ahead


def _taken(state: State, value: float, lacks: float, *, replayed: bool) -> Found:
    return Found(state.row.copy(), state.blocks.copy(), state.shares.copy(), state.ahead.copy(), value, lacks, replayed)
