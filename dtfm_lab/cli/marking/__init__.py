"""Marks notebooks of a class: each is executed in isolation, and its answers are checked outside its kernel."""

from dtfm_lab.cli.marking.marks import COLUMNS, mark_folder

__all__ = ["COLUMNS", "mark_folder"]
