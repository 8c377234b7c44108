"""Views of the course, one folder each."""
