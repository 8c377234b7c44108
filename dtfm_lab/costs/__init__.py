"""What an iteration costs: seconds of passes, messages and averaging, and bytes in memory.

The simulator, the search, its bounds and the memory report all use these functions, so each cost has one definition.

``efficiency`` has the share of its peak FLOP/s that a device reaches. ``seconds`` has the time of a layer, of a
collective and of averaging. ``sharded_passes`` adds the messages of sharded parameters and gradients. ``memory`` has
what a device holds all the time, and for a micro-batch. ``basis`` says how far to trust a prediction.
"""
