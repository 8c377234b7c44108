"""Step 5: other links, batches and schedules at once."""
