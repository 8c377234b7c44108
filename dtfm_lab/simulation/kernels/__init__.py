"""Inner loops of the simulator: plain Python that also compiles."""
