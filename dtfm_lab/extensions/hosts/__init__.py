"""Runs on several hosts: write run folders from which each host starts its workers, and plans for other frameworks.

``export`` writes a run folder, ``hosted`` starts the workers of one host from it, and ``rendezvous`` connects them to
the coordinator. ``launchers`` writes a plan for another framework and its schedulers. Only ``hosted`` loads torch.
"""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="hosts",
    commands={
        "export": (
            "dtfm_lab.extensions.hosts.commands:export",
            "Write what hosts need to run PLAN, or a page to look at it.",
        )
    },
    formats={
        "hosts": "dtfm_lab.extensions.hosts.formats:HOSTS",
        "run": "dtfm_lab.extensions.hosts.formats:RUN",
    },
)
