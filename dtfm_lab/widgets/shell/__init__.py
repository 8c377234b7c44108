"""What surrounds the steps of the lab: their frames and states, files and autosave."""
