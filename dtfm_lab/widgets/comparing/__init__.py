"""Step 7: where the prediction was wrong."""
