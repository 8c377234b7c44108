"""The process between the client and the workers of a run; it imports no torch.

``Coordinator`` keeps the workers in step and replaces lost ones. It is given a function that starts a worker, so that
workers may be forks of its own process (``worker.local_run``) or processes of other hosts (an extension starts these).
"""
