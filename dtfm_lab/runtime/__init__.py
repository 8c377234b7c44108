"""Plan + Schedule -> Trace on real workers. ``launch`` and ``run`` are the kernel's side, the rest the workers'."""
