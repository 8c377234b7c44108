"""The step Schedule: a chart of one iteration, options to try on the plan, and a comparison of all schedules."""
