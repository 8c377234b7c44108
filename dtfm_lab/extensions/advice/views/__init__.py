"""Views of the advice, one folder each."""
