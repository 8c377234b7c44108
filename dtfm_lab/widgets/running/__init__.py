"""Step 6: real workers, watched and disturbed."""
