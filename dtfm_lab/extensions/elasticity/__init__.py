"""Training on devices that come and go: when devices are online, how a policy responds, and what a run achieves."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="elasticity",
    api={
        "Availability": "dtfm_lab.extensions.elasticity.availability:Availability",
        "load_availability": "dtfm_lab.extensions.elasticity.availability_files:load_availability",
        "policies": "dtfm_lab.extensions.elasticity.api:policies",
        "replay": "dtfm_lab.extensions.elasticity.replaying:replay",
    },
    figures={
        "availability": "dtfm_lab.extensions.elasticity.figures.history:availability",
        "history": "dtfm_lab.extensions.elasticity.figures.history:history",
        "race": "dtfm_lab.extensions.elasticity.figures.race:race",
    },
    commands={
        "simulate --hours": (
            "dtfm_lab.extensions.elasticity.commands:hours",
            "Predict hours of training on a TOPOLOGY whose devices come and go, under each policy, and compare them "
            "with perfect foresight.",
        )
    },
    panes={"hours": "dtfm_lab.extensions.elasticity.pane:hours_step"},
    writers={"Availability.csv": "dtfm_lab.extensions.elasticity.availability_files:save_availability"},
    instead={
        "run.availability": "dtfm_lab.extensions.elasticity.replaying:run_hours",
        "run.policy": "dtfm_lab.extensions.elasticity.replaying:run_hours",
    },
)
