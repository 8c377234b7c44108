"""What an iteration costs, said once: seconds of passes, messages and averages, and bytes that are held.

The engine, the search, its bounds, the memory report and the modelled systems all read these.
``efficiency`` says which share of its peak a device reaches. ``seconds`` says what averaging, a collective and a layer
take. ``memory`` says what a device holds all the time and for a micro-batch.
"""
