"""One shape under search: its best plan so far, and the annealing that improves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray

if TYPE_CHECKING:
    from dtfm_lab.planning.iteration.kernels.annealing import Freedom
    from dtfm_lab.planning.iteration.kernels.state import State
    from dtfm_lab.planning.iteration.kernels.tables import Tables


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

    row = np.zeros(n_devices, dtype=np.int64)

    def whole(n: int) -> IntArray:
        return np.ones(n, dtype=np.int64)

    def real(*shape: int) -> FloatArray:
        return np.zeros(shape)

    return State(
        row=row,
        grid=row[: n_stages * n_replicas].reshape(n_stages, n_replicas),
        blocks=whole(n_stages),
        shares=whole(n_replicas),
        ahead=whole(n_stages),
        flop=real(n_stages),
        parameters=real(n_stages),
        kept=real(n_stages),
        again=real(n_stages),
        passing=real(n_stages),
        averaging=real(n_stages, n_replicas),
        ready=real(n_replicas, n_stages),
        up_free_s=real(n_replicas),
        line=real(n_replicas, 2),
        critical=np.zeros(n_replicas, dtype=np.int64),
        group_s=real(n_stages),
        tied_s=real(n_replicas),
        over=real(n_replicas, n_stages),
        scratch=real(9, n_stages),
        lots=real(3, n_replicas),
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
        self.slices = 0
        """Annealings so far."""
        self._given_ahead = ahead(shape[0])
        self._states: list[State] = []

    @property
    def states(self) -> list[State]:
        """Three states of this shape, made when first used."""
        if not self._states:
            self._states = [new_state(*self.shape, len(self.tables.flop_per_s)) for _ in range(3)]
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
        from dtfm_lab.planning.iteration.kernels.annealing import assess

        state = self.states[0]
        state.row[:], state.blocks[:] = row, blocks
        state.shares[:] = self.even_shares() if shares is None else shares
        state.ahead[:] = self._first_ahead() if ahead is None else ahead
        value, lacks = assess(self.tables, state, self.freedom, factor, exact)
        return _taken(state, value, lacks, replayed=exact)

    def annealed(self, found: Found, hot: float, cold: float, n_moves: int, random: Any, *, exact: bool) -> Found:
        """The best plan that annealing from this one finds."""
        from dtfm_lab.planning.iteration.kernels.annealing import anneal

        trial, now, best = self.states
        trial.row[:], trial.blocks[:] = found.row, found.blocks
        trial.shares[:], trial.ahead[:] = found.shares, found.ahead
        value, lacks = anneal(self.tables, trial, now, best, self.freedom, exact, hot, cold, n_moves, random)
        return _taken(best, value, lacks, replayed=exact)

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
