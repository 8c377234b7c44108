"""Marks a class's notebooks in processes that a server forks, isolated from the rest of the machine."""
