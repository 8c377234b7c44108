"""What the processes of a run exchange: options and spec, commands and events, checkpoints, text and shards.

Nothing here imports torch, because the client and the coordinator of a run use it.
"""
