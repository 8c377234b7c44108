"""Figures of availabilities, histories and races of policies."""
