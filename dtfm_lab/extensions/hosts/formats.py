"""The files of an exported run that have a JSON Schema."""

from dtfm_lab.extensions.hosts.hosts import HostsFile, RunFile
from dtfm_lab.lab.schemas import JSON, Format, schema_of, written_by_people

HOSTS = Format(
    "Which host runs which devices of a plan: `hosts.yaml` of an exported run.",
    (".yaml",),
    "`dtfm-lab export`, then people",
    lambda: written_by_people(schema_of(HostsFile)),
)
RUN = Format(
    "What processes of an exported run read first: `run.json`.", JSON, "`dtfm-lab export`", lambda: schema_of(RunFile)
)
