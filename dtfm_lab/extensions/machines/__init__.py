"""A network of your own machines, from the output of other tools and from a probe over ssh.

Each source, such as a file, is read separately. ``sources`` chooses the reader, ``seen`` defines what a source may
report, and ``network`` merges all reports. A link that was not measured is estimated if there is a rule for it, and the
network's description says so. Without a rule there is an error. ``calibrate`` times what a machine computes.
``pyproject.toml`` registers ``network_from`` as the reader of lists of files.
"""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="machines",
    commands={
        "network from": (
            "dtfm_lab.extensions.machines.commands:network_from_files",
            "Make a network from the output of tools about your machines.",
        ),
        "network probe": (
            "dtfm_lab.extensions.machines.commands:network_of_hosts",
            "Measure the network between hosts that you can reach with ssh.",
        ),
        "calibrate": (
            "dtfm_lab.extensions.machines.commands:calibrate_command",
            "Measure this machine, to calibrate predictions.",
        ),
    },
    went={"probe": "dtfm-lab network probe"},
)
