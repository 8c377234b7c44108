"""What predictions and runs amount to: comparisons, errors by cause, refits, sweeps, sensitivities and losses."""
