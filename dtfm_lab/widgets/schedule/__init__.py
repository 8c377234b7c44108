"""Step 4: one iteration as a chart, and what is chosen for it."""
