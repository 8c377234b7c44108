"""Views of hours in which devices come and go, one folder each."""
