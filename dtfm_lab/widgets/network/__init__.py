"""The step Network: a drawing of the network on a canvas, on a map and as a matrix, and its files."""
