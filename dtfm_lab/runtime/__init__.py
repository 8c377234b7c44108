"""Plan + Schedule -> Trace on real workers; a package for each kind of process.

``client`` (the user's process), ``coordinator`` and ``protocol`` import no torch; ``worker`` and ``gpu`` do.
"""
