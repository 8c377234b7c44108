"""The step Schedule: one iteration as a chart."""
