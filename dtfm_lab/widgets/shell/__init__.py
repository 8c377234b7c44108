"""Around the steps: their states, the lab as a file and as Python."""
