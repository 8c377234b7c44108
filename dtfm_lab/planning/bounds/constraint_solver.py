"""The constraint solver as planning uses it: one thread, reproducible, and correct."""

from typing import Any


def cp_solver(effort: float, seed: int = 0) -> Any:
    """A CP-SAT solver with a limit of deterministic time, about seconds.

    In OR-Tools 9.15 presolve merges at-most-one constraints into linear ones wrongly (its issue 5293): of our small
    models with large coefficients, half were declared infeasible though they are feasible. Without that step none was.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = effort
    solver.parameters.presolve_inclusion_work_limit = 0
    solver.parameters.catch_sigint_signal = False  # its handler would stay, and an interrupt would then end the process
    return solver
