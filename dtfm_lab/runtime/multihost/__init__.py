"""Runs on several hosts: ``export`` writes a run folder, from which torchrun starts the workers of every host.

``rendezvous`` connects those workers to the coordinator; ``traffic_shaping`` makes real links as slow as drawn ones.
"""
