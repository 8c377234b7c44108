"""What an iteration costs: seconds of passes, messages and averaging, and bytes in memory.

The engine, the search, its bounds, the memory report and the modelled systems all use these functions, so each cost has
one definition.

``efficiency`` returns the share of its peak that a device reaches. ``seconds`` returns the time of averaging, of a
collective and of a layer. ``memory`` returns what a device holds all the time and for a micro-batch.
"""
