"""The hot loops of the search for seconds and dollars. They are compiled on the first call and cached next to the
source.

Importing any module of this package imports numba, so the search imports it only when it runs. Letters: N
devices, L blocks, S stages, R pipelines (replicas), M micro-batches of one pipeline. A grid is (S, R) devices:
stage s of pipeline r.
"""
