"""A worker's GPU: streams and pinned memory, codec kernels by CuPy, and what of all that is installed.

Import modules one by one: a run on CPUs does not load CuPy.
"""
