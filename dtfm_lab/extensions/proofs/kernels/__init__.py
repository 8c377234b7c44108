"""The hot loops of the proofs, compiled by numba on first call and cached next to the source.

Importing this package imports numba, which takes a noticeable time.
"""
