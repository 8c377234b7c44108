"""Several hosts: run folders from which each starts its workers, and a plan for other frameworks and schedulers."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="hosts",
    formats={
        "hosts": "dtfm_lab.extensions.hosts.formats:HOSTS",
        "run": "dtfm_lab.extensions.hosts.formats:RUN",
    },
)
