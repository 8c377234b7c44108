"""The hot loops of the proofs, compiled by numba when first called and cached beside the source.

Importing this package imports numba, which takes a noticeable while.
"""
