"""The pane Hours: devices come and go, and policies race through the same hours."""
