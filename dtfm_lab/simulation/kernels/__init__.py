"""Inner loops of the simulator: plain Python that numba also compiles. ``engine`` chooses which form runs."""
