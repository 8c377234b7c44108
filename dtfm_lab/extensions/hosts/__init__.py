"""Several hosts: run folders from which each starts its workers, and a plan for other frameworks and schedulers.

``export`` writes a run folder, from which ``hosted`` starts the workers of every host; ``rendezvous`` connects those to
the coordinator. ``launchers`` writes a plan for another framework. Only ``hosted`` loads torch.
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
