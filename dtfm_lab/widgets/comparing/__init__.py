"""The step Compare: prediction against measurement, suspects, residuals, and a refit of the network."""
