"""Plans and searches: the coarsened graph, the five steps to it, the cost, and how a search converged."""
