"""A worker's GPU: streams and pinned memory, codec kernels by CuPy, and process groups by torch's NCCL.

Import modules one by one: a run on CPUs loads neither CuPy nor NCCL.
"""
