"""The step Schedule: one iteration as a chart, what is tried on the plan, and all schedules side by side."""
