'''The planners, one file each; importing this package registers them.

A planner is a generator that yields its best placement so far. ``planning.problem`` documents its arguments and what it
yields. Another package registers a planner by an entry point (``domain.registry``). This planner is complete::

    from itertools import count
    from dtfm_lab.planning import Generation, planners

    @planners.register("hill-climbing")
    def hill_climbing(problem, rng):
        """Swap two devices at random; keep the swap if it costs no more."""
        row = rng.permutation(problem.n_devices)
        best = problem.rematched(problem.grid(row))
        for evaluations in count(1):
            yield Generation(best, problem.cost(best), evaluations)
            i, j = rng.integers(len(row), size=2)
            row[[i, j]] = row[[j, i]]
            grid = problem.rematched(problem.grid(row))
            if problem.cost(grid) <= problem.cost(best):
                best = grid
            else:
                row[[i, j]] = row[[j, i]]
'''

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")  # registers its planner; modules that load numba are kept elsewhere
