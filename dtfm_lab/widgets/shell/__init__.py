"""What surrounds the steps of the lab: their frames and states, files, autosave, and the lab as Python."""
