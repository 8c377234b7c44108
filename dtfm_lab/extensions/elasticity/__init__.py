"""Hours in which devices come and go: availabilities, policies, and what a run makes of them."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="elasticity",
    api={
        "Availability": "dtfm_lab.domain.availability:Availability",
        "load_availability": "dtfm_lab.files.availability:load_availability",
        "policies": "dtfm_lab.elasticity:policies",
        "replay": "dtfm_lab.lab.histories:replay",
    },
    figures={
        "availability": "dtfm_lab.figures.timeline.history:availability",
        "history": "dtfm_lab.figures.timeline.history:history",
        "race": "dtfm_lab.figures.timeline.race:race",
    },
    commands={
        "simulate --hours": (
            "dtfm_lab.cli.hours:hours",
            "Predict hours of training on a TOPOLOGY whose devices come and go, under policies, beside what foresight "
            "would make.",
        )
    },
    panes={"hours": "dtfm_lab.widgets.hours:hours_step"},
    writers={"Availability.csv": "dtfm_lab.files.availability:save_availability"},
    instead={
        "run.availability": "dtfm_lab.lab.histories:run_hours",
        "run.policy": "dtfm_lab.lab.histories:run_hours",
    },
)
