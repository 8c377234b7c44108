"""Availabilities, histories of hours, and races of policies as plotly figures."""
