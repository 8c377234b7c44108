"""The side of a run in the process that starts it: options are checked, processes started, events recorded.

``launch.start`` returns a ``run.Run``; nothing here imports torch. All options of a run are in ``RunOptions``.
"""

from dtfm_lab.runtime.protocol.run_options import RunOptions

__all__ = ["RunOptions"]
