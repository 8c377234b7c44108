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

CATEGORIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW)
"""things told apart by colour alone, such as planners"""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
FAINT = "rgba(128, 128, 128, 0.35)"
"""lines that stand back, on a light and on a dark page"""
CHEAP_TO_DEAR = "Viridis_r"
"""light is cheap, dark is dear"""

KIND_COLORS = {
    Kind.FORWARD: BLUE,
    Kind.BACKWARD: ORANGE,
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
}
"""a receive has the colour of its send"""
YELLOW_EDGE = "#8A7F00"
"""around yellow, which a white page would swallow"""

CONTENT = {
    Kind.SEND_F: "activation",
    Kind.SEND_B: "activation gradient",
    Kind.SEND_G: "gradient shard",
    Kind.SEND_P: "averaged shard",
}
"""what a message holds"""
KIND_NAMES = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.REDUCE: "average",
    Kind.STEP: "optimiser step",
    **{send: f"send {CONTENT[send]}" for send in SENDS},
    **{receive: f"receive {CONTENT[send]}" for receive, send in RECEIVES.items()},
}


def legend_name(kind: Kind) -> str:
    """A message is called by its content, at both of its ends."""
    return KIND_NAMES[kind] if kind in COMPUTE else CONTENT[RECEIVES.get(kind, kind)]


def stage_color(stage: int) -> str:
    """Six colours in turn; whoever uses it writes the stage's number next to it."""
    return (SKY, ORANGE, GREEN, YELLOW, BLUE, PURPLE)[stage % 6]


def ink_on(color: str) -> str:
    """Black or white, whichever reads better on a colour."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#111111" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"
