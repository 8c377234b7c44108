"""A worker's GPU: streams and pinned memory, codec kernels in CuPy, and a probe of what is installed.

Import these modules one by one, so that a run on CPUs does not load CuPy.
"""
