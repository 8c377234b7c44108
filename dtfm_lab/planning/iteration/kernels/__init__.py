"""The hot loops of the search for seconds and dollars, compiled when first called and cached beside the source.

Importing any module of this package imports numba, so the search does it when it runs. Letters: N devices, L blocks,
S stages, R pipelines (replicas), M micro-batches of one pipeline. A grid is (S, R) devices; stage s of pipeline r.
"""
