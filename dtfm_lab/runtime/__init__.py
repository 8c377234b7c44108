"""Plan + Schedule -> Trace on real workers, by the processes that carry it out.

``client`` (the user's process) and ``coordinator`` import no torch, nor do ``protocol``, ``multihost`` and ``probe``;
``worker`` and ``gpu`` do. ``hosted`` is the entry point of a run on several hosts.
"""
