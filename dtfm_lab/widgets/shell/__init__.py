"""The parts around the lab's steps: their frames and states, files and autosave."""
