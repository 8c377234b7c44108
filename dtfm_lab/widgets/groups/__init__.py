"""Step 3: the groups of a plan, the paper's five steps, devices moved by hand."""
