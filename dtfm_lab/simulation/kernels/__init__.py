"""Inner loops of the simulator. They are plain Python that numba can compile. ``engine`` chooses which form runs.

Each loop is one long function, because compiled code cannot call a plain helper. Marking helpers for numba would import
numba for every small simulation, which takes longer than the simulation itself.
"""
