"""A class's notebooks are marked in processes that a server forks, behind walls that keep them from the rest."""
