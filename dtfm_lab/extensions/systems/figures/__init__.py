"""Outcomes, crossings and waterfalls of training systems as plotly figures."""
