"""The process between the client and the workers of a run. It imports no torch.

``Coordinator`` keeps the workers in step and replaces lost ones. It receives a function that starts a worker. So
workers may be forks of the coordinator's process (``worker.local_run``) or processes on other hosts (an extension
starts these).
"""
