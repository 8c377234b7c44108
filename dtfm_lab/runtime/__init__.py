"""Plan + Schedule -> Trace on real workers. ``launch`` runs in the kernel, the rest in the workers."""
