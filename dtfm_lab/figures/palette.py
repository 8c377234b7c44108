"""Colours and words that mean the same in every figure; colour-blind readers can tell them apart (Okabe and Ito)."""

from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, SENDS, Kind

ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#999999"
YELLOW_EDGE = "#8A7F00"
"""The edge of yellow things, which a white page would hide."""

CATEGORIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW)
"""Colours in turn for things that differ by colour alone, such as planners."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
FAINT = "rgba(128, 128, 128, 0.35)"
"""Lines in the background, on a light and on a dark page."""
LINE_GREY = "#808080"
"""Lines that are easy to see on a light and on a dark page."""
MARKER_EDGE = "#444444"
"""The edge of markers that stand for devices or stages."""
CHEAP_TO_DEAR = "Viridis_r"
"""Colour scale of costs: light is cheap, dark is dear."""

BROWN = "#7A5200"
CREAM = "#F6CE7E"
PLUM = "#8A4B75"
PEACH = "#F7A98B"
"""Each of these four is at least 15 away in CIELAB from the other colours of its lane, also for readers who see no
red or no green, as simulated by Machado et al. 2009."""
CRIMSON = "#C2003B"
"""The critical path, which is drawn with a white casing to stand out on any bar and page."""

KIND_COLORS = {
    Kind.FORWARD: BLUE,
    Kind.BACKWARD: ORANGE,
    Kind.BACKWARD_INPUT: BROWN,
    Kind.BACKWARD_WEIGHT: CREAM,
    Kind.PACK: PLUM,
    Kind.REDUCE: PURPLE,
    Kind.STEP: GREEN,
    Kind.SEND_F: SKY,
    Kind.RECV_F: SKY,
    Kind.SEND_B: YELLOW,
    Kind.RECV_B: YELLOW,
    Kind.SEND_G: VERMILLION,
    Kind.RECV_G: VERMILLION,
    Kind.SEND_P: GREY,
    Kind.RECV_P: GREY,
    Kind.SEND_E: PEACH,
    Kind.RECV_E: PEACH,
}
"""A receive has the colour of its send. Backwards are orange, their halves darker and paler; averaging is purple;
gradients between replicas or tied stages are red."""
EDGES = {YELLOW: YELLOW_EDGE, CREAM: "#9A7A2E"}
"""Edges of the colours that a white page would hide."""

CONTENT = {
    Kind.SEND_F: "activation",
    Kind.SEND_B: "activation gradient",
    Kind.SEND_G: "gradient to average",
    Kind.SEND_P: "averaged gradient",
    Kind.SEND_E: "tied embedding gradient",
}
"""What a message holds, by the kind of its send."""
KIND_NAMES = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.BACKWARD_INPUT: "backward of inputs",
    Kind.BACKWARD_WEIGHT: "backward of weights",
    Kind.PACK: "compress gradient",
    Kind.REDUCE: "average",
    Kind.STEP: "optimiser step",
    **{send: f"send {CONTENT[send]}" for send in SENDS},
    **{receive: f"receive {CONTENT[send]}" for receive, send in RECEIVES.items()},
}
CAUSE_COLORS = {
    "busy": BLUE,
    "dependency": GREY,
    "latency": SKY,
    "bandwidth": YELLOW,
    "queue": ORANGE,
    "synchronisation": VERMILLION,
    "straggler": PURPLE,
}
"""Colours of the causes that a device's time goes to. Waiting for messages is sky and yellow, the colours that messages
have in a Gantt chart."""


def legend_name(kind: Kind) -> str:
    """The name of a kind of action in a legend; a message is named by its content at both of its ends."""
    return KIND_NAMES[kind] if kind in COMPUTE else CONTENT[RECEIVES.get(kind, kind)]


def paler(color: str, share: float) -> str:
    """The colour mixed with this share of white: 0 is the colour itself, 1 is white."""
    mixed = (round(int(color[at : at + 2], 16) * (1 - share) + 255 * share) for at in (1, 3, 5))
    return "#" + "".join(f"{channel:02X}" for channel in mixed)


def stage_color(stage: int) -> str:
    """One of six colours in turn, so the stage's number must be written next to it."""
    return (SKY, ORANGE, GREEN, YELLOW, BLUE, PURPLE)[stage % 6]


def ink_on(color: str) -> str:
    """Black or white, whichever is easier to read on the colour."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#111111" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"
