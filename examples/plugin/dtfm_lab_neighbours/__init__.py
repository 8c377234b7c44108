"""An extension of dtfm_lab: a name, a command and a pane. This module only says where they are."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="neighbours",
    api={"nearest": "dtfm_lab_neighbours.nearest:nearest"},
    commands={"nearest": ("dtfm_lab_neighbours.nearest:nearest_command", "Say which device is nearest to DEVICE.")},
    panes={"neighbours": "dtfm_lab_neighbours.pane:neighbours_step"},
)
