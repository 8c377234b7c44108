"""Runs on several hosts: ``export`` writes a run folder, from which ``hosted`` starts the workers of every host.

``rendezvous`` connects those workers to the coordinator.
"""
