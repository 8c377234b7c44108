"""A worker's GPU: streams and pinned memory, codec kernels by CuPy, and point-to-point messages by NCCL.

Import modules one by one: a run on CPUs loads neither CuPy nor NCCL.
"""
