"""Plan + Schedule -> Trace on real workers; a package for each kind of process.

``client`` (the user's process) and ``coordinator`` import no torch, nor do ``protocol``, ``multihost`` and ``probe``;
``worker`` and ``gpu`` do. ``hosted`` is the entry point of a run on several hosts.
"""
