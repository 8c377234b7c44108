"""Plans and searches: the coarsened graph, the cost, and how a search converged."""
