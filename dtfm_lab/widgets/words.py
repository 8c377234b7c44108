"""The words of the field that the lab uses, each explained in one sentence: the lab's hover glossary."""

from html import escape

WORDS = {
    "activation": "What a stage hands to the next one for a micro-batch; its gradient comes back on the same link.",
    "averaging": "The devices that hold the same stage exchange their gradients, so that all take the same step.",
    "backward": "The pass from the last stage to the first that computes gradients; about twice a forward's work.",
    "bandwidth": "How many bits a second a link carries: a large message is slow where this is small.",
    "batch": "The sequences, or samples, of one iteration, over all replicas.",
    "bound": "A time, or cost, that no plan can beat. It is proven, and rises while a search runs.",
    "bubble": "Time in which a stage has nothing to compute because its pipeline is filling or draining.",
    "clock": (
        "How a run computes and waits: for real on this machine, or for as long as the network's devices and links "
        "are said to take."
    ),
    "communication cost": (
        "The slowest group's averaging plus the path through the pipeline, in seconds; it leaves out computation."
    ),
    "compression": "Messages are rounded to fewer bits on their way: they travel faster, and coding them takes time.",
    "critical path": "The chain of actions and messages that no idle time interrupts: only shortening it helps.",
    "data-parallel group": "The devices that hold the same stage in all replicas; they average their gradients.",
    "device": "One accelerator that can hold one stage.",
    "error": "Measured minus predicted: plus is longer than predicted. Percent is of the prediction.",
    "forward": "The pass from the first stage to the last that computes what the model says.",
    "frontier": "The plans of which none is both faster and cheaper than another.",
    "gap": "What a plan costs over its bound: at 1.04 no plan whatever can be better by more than a factor of 1.04.",
    "gathering": "Parameters that replicas split among them are fetched just before a layer uses them: ZeRO-3, FSDP.",
    "gradient": "How each parameter should change; it has the size of the parameters it is for.",
    "hop": "One message along a pipeline, from a stage to the next one or back.",
    "iteration": "One training step: every micro-batch forward and backward, averaging, and the optimiser's step.",
    "latency": "The time that a message of one bit takes: many small messages are slow where it is large.",
    "micro-batch": "A part of a replica's batch; a batch is cut so that all stages have something to compute.",
    "mutation": "In the evolutionary search: two devices change places by chance.",
    "optimizer step": "The parameters change by the averaged gradient; it ends an iteration.",
    "crossover": "In the evolutionary search: a child takes its groups from two parents.",
    "pipeline": "A chain of devices that holds all stages once: activations go down it, gradients come back up.",
    "placement": "Which device holds which stage of which replica.",
    "plan": "A placement with its cost and a bound on every plan's cost.",
    "population": "In the evolutionary search: the placements that are kept and combined.",
    "prediction": "The schedule played in virtual time, with the speeds of devices and links.",
    "profile": "How long each stage's forward and backward really take, measured on one device of each kind.",
    "queue": "Messages that wait because others are sent before them on the same link or network card.",
    "queueing": "How messages share a wire: each pair of devices has its own, or all of a device's messages one card.",
    "recompute": "A device keeps only its input and computes the rest again for the backward: less memory, more work.",
    "refit": "Speeds and link numbers that explain what was measured, and the network with those.",
    "replica": "One pipeline, with its own copy of the model and its own share of the batch.",
    "residual": "What a prediction left unexplained of one device or link: measured minus predicted.",
    "schedule": "The order in which each device runs its forwards and backwards.",
    "1f1b": "A schedule: after a few forwards, one backward after every forward; it holds few activations.",
    "gpipe": "A schedule: all forwards, then all backwards; it holds the activations of the whole batch.",
    "seed": "The number that chance starts from: the same seed gives the same search.",
    "share": "The micro-batches that one pipeline does in an iteration; a fast pipeline may do more than a slow one.",
    "sharded": "Each device of a group averages one part of the gradient for all, and sends the result to the others.",
    "central": "One device of a group averages the gradients of all, and sends the result to the others.",
    "ring": "Parts of the gradient go round the devices of a group, each adding its own.",
    "tree": "Devices of a group add up gradients in pairs, up a tree, and the average goes down again.",
    "local updates": "Replicas train on their own and average only in every H-th iteration.",
    "stage": "Consecutive layers of the model; a device holds one stage.",
    "staleness": "Something was changed after this was computed, so that it no longer says what is true now.",
    "straggler": "A device or link that makes the others wait, because it is slower than they are.",
    "suspect": "The device or link that explains most of the error.",
    "system": "A training system such as Megatron-LM as modelled here: the plans it allows, and what is assumed of it.",
    "synchronisation": "How and how often the devices of a stage average their gradients.",
    "throughput": "Tokens that are trained on in a second.",
}
"""{word: one sentence}, without a word that is obvious. docs/glossary.md says more."""
ALSO = {
    "stale": "staleness",
    "gradients": "gradient",
    "activations": "activation",
    "lower bound": "bound",
    "group": "data-parallel group",
    "microbatch": "micro-batch",
    "micro-batches": "micro-batch",
    "predicted": "prediction",
    "recompute activations": "recompute",
}
"""Other forms under which a word is looked up; a plural's s is left off without an entry."""


def meaning(word: str) -> str:
    """Return the sentence that explains a word in any of its forms; empty where there is none."""
    key = word.strip().lower()
    for form in (key, ALSO.get(key, ""), key.removesuffix("s")):
        if form in WORDS:
            return WORDS[form]
    return ""


def word(term: str, text: str = "") -> str:
    """Return HTML of a word that explains itself on hover and focus; ``text`` is how it reads, where it differs."""
    return f'<span class="dtfm-word" data-word="{escape(term)}" tabindex="0">{escape(text or term)}</span>'
