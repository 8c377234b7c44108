"""The hot loops of planning, compiled by numba when first called and cached beside the source.

Importing this package imports numba, which takes a noticeable while, so planners import it when they
run and not before (``planning.warmth``). Kernels take arrays and scratch space, never nouns; all of
their chance comes from one 64-bit state that the caller seeds (``draw``), so equal seeds walk alike.
"""
