"""The step Network: the network as a canvas, a map and a matrix, and its files."""
