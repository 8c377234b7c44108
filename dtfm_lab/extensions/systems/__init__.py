"""What training systems would do with a network: models of the systems, their outcomes, and why one is slower than
another."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="systems",
    api={"strategies": "dtfm_lab.extensions.systems.asked:strategies", "systems": "dtfm_lab.extensions.systems.api"},
    figures={
        "crossings": "dtfm_lab.extensions.systems.figures.outcomes:crossings",
        "strategies": "dtfm_lab.extensions.systems.figures.outcomes:strategies",
        "waterfall": "dtfm_lab.extensions.systems.figures.waterfall:waterfall",
    },
    commands={
        "strategies": (
            "dtfm_lab.extensions.systems.commands:strategies_command",
            "Say what each training system would do with TOPOLOGY.",
        ),
        "strategies --crossings": (
            "dtfm_lab.extensions.systems.commands:crossings_command",
            "Say at which bandwidth, latency or batch which system is fastest on TOPOLOGY.",
        ),
        "strategies --list": (
            "dtfm_lab.extensions.systems.commands:systems_command",
            "List the training systems that have a model, what is assumed about each, and the sources.",
        ),
    },
    panes={"systems": "dtfm_lab.extensions.systems.pane:systems_step"},
    words={
        "system": ("A training system such as Megatron-LM, as modelled here: the plans it allows, and its assumptions.")
    },
    went={
        "codesign": "lab.strategies(..., over=...), or lab.explain(outcome).remains_s: what messages do not take",
        "crossings": "lab.strategies(..., over='bandwidth')",
        "search_codesign": "lab.strategies(..., over='bandwidth', progress=...)",
        "search_crossings": "lab.strategies(..., over='bandwidth', progress=...)",
        "search_strategies": "lab.strategies(..., progress=...)",
    },
)
