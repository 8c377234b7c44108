"""Inner loops of the simulator: plain Python that numba also compiles; ``compilation`` chooses the form to run."""
