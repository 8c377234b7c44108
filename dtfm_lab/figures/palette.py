"""Colours and words that mean the same in every figure: Okabe-Ito, told apart by colour-blind readers."""

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
"""around yellow, which a white page would swallow"""

CATEGORIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW)
"""things told apart by colour alone, such as planners"""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
FAINT = "rgba(128, 128, 128, 0.35)"
"""lines that stand back, on a light and on a dark page"""
LINE_GREY = "#808080"
"""lines to be seen on both"""
CHEAP_TO_DEAR = "Viridis_r"
"""light is cheap, dark is dear"""

BROWN = "#7A5200"
CREAM = "#F6CE7E"
PLUM = "#8A4B75"
PEACH = "#F7A98B"
"""at least 15 apart in CIELAB from the others of their lane, also for who sees no red or no green (as Machado et
al. 2009 simulate it)"""
CRIMSON = "#C2003B"
"""the critical path; in a white casing it stands out on any bar and page"""

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
"""A receive has the colour of its send. Backwards are orange, their halves darker and paler; what averages is
purple; gradients between replicas or tied stages are red."""
EDGES = {YELLOW: YELLOW_EDGE, CREAM: "#9A7A2E"}
"""around what a white page would swallow"""

CONTENT = {
    Kind.SEND_F: "activation",
    Kind.SEND_B: "activation gradient",
    Kind.SEND_G: "gradient to average",
    Kind.SEND_P: "averaged gradient",
    Kind.SEND_E: "tied embedding gradient",
}
"""what a message holds"""
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
"""what a device's time goes to; what it waits for at messages is sky and yellow, as they are in a Gantt chart"""


def legend_name(kind: Kind) -> str:
    """A message is called by its content, at both of its ends."""
    return KIND_NAMES[kind] if kind in COMPUTE else CONTENT[RECEIVES.get(kind, kind)]


def paler(color: str, share: float) -> str:
    """So far on its way to white: 0 is the colour itself."""
    mixed = (round(int(color[at : at + 2], 16) * (1 - share) + 255 * share) for at in (1, 3, 5))
    return "#" + "".join(f"{channel:02X}" for channel in mixed)


def stage_color(stage: int) -> str:
    """Six colours in turn; whoever uses it writes the stage's number next to it."""
    return (SKY, ORANGE, GREEN, YELLOW, BLUE, PURPLE)[stage % 6]


def ink_on(color: str) -> str:
    """Black or white, whichever reads better on a colour."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#111111" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"
