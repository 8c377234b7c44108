"""Results of predictions and runs: comparisons, errors by cause, refits, sweeps, sensitivities and losses."""
