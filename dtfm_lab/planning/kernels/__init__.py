"""The hot loops of planning, compiled by numba when first called, and cached on disk.

Importing a module of this package imports numba, which takes a while. Planners therefore do so only when they run.
Kernels take arrays and scratch space, never domain classes. All random numbers come from one 64-bit state that the
caller seeds (``random_numbers``), so equal seeds give equal results.
"""
