"""Inner loops of the simulator: plain Python that numba also compiles. ``engine`` chooses which form runs.

Each loop is one long function. Compiled code cannot call a plain helper. Marking helpers for numba would import it for
every small simulation, which takes longer than the simulation itself.
"""
