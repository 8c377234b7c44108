"""The pane Course: lessons and missions, and a check of what is on the screen."""
