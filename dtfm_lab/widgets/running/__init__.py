"""The step Run: real workers, what they do, faults caused by hand, and the losses."""
