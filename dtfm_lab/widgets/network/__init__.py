"""Step 1: the network, drawn on a canvas, on a map, in a matrix."""
