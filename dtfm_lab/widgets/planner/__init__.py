"""Step 2: searches, races and replanning."""
