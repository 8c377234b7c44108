"""How the constraint solver is run wherever planning asks it: one thread, reproducible, and sound."""

from __future__ import annotations

from typing import Any


def cp_solver(effort: float, seed: int = 0) -> Any:
    """A CP-SAT solver with a limit of deterministic time, about seconds.

    Presolve merges at-most-one constraints into linear ones wrongly in OR-Tools 9.15 (its issue 5293): with large
    coefficients half of our small models came out infeasible that are not. Without that step none did.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = effort
    solver.parameters.presolve_inclusion_work_limit = 0
    solver.parameters.catch_sigint_signal = False  # its handler stays behind, and an interrupt ends the process
    return solver
