"""Results of predictions and runs: comparisons, errors by cause, sweeps, sensitivities and losses."""
