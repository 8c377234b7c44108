"""The step Groups: a plan in the paper's five steps, why it is so, and devices moved by hand."""
