"""A network of your own machines, from what other tools print of them and from a probe over ssh.

Each source is read by itself (``sources`` knows the readers, ``seen`` is what each may say), then ``network`` merges
all. What nobody measured is estimated where there is a rule for it, and the network's description says so; where there
is none, it is refused. ``calibrate`` times what a machine computes. ``pyproject.toml`` registers ``network_from`` as
what reads a list of files.
"""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="machines",
    commands={
        "network from": (
            "dtfm_lab.extensions.machines.commands:network_from_files",
            "Make a network of what your tools say of your machines.",
        ),
        "network probe": (
            "dtfm_lab.extensions.machines.commands:network_of_hosts",
            "Measure the network between hosts that answer to ssh.",
        ),
        "calibrate": (
            "dtfm_lab.extensions.machines.commands:calibrate_command",
            "Measure this machine, to calibrate predictions.",
        ),
    },
    went={"probe": "dtfm-lab network probe"},
)
