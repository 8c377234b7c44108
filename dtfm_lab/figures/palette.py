"""Colours and words that mean the same in every figure and view. Red marks what is wrong, slowed or dead, and crimson
the critical path and limits."""

import math

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
"""The edge of yellow things, which would be invisible on a white page."""

CATEGORIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW)
"""Colours, used one after another, of things that differ only by colour, such as planners."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon")
FAINT = "rgba(128, 128, 128, 0.35)"
"""Lines in the background, on light and dark pages."""
LINE_GREY = "#808080"
"""Lines that are easy to see on light and dark pages."""
MARKER_EDGE = "#444444"
"""The edge of markers for devices or stages."""
CHEAP_TO_DEAR = "Viridis_r"
"""Colour scale of costs: light is cheap, dark is expensive."""

CRIMSON = "#C2003B"
"""The critical path, drawn with a white casing to stand out on any bar and page."""

HUES = {
    "forward": ("#3B8FD0", "#5FB0EC"),
    "backward": ("#E0981B", "#F0B044"),
    "averaging": ("#1F9D74", "#3FC298"),
    "step": ("#8A8A92", "#9A9AA4"),
}
"""The hue of each family of actions on a light and on a dark page. theme.js has the same."""
PAGES = ("#FFFFFF", "#17171B")
"""Approximate colours of a light and a dark page."""
MESSAGE = 0.38
"""Share of the page's colour in the colour of most messages: activations, their gradients and those of tied
embeddings."""
KIND_TINTS = {
    Kind.FORWARD: ("forward", 0.0),
    Kind.BACKWARD: ("backward", 0.0),
    Kind.BACKWARD_INPUT: ("backward", -0.28),
    Kind.BACKWARD_WEIGHT: ("backward", 0.45),
    Kind.PART: ("backward", 0.2),
    Kind.PACK: ("averaging", -0.4),
    Kind.REDUCE: ("averaging", -0.2),
    Kind.STEP: ("step", 0.0),
    Kind.SEND_F: ("forward", MESSAGE),
    Kind.SEND_B: ("backward", MESSAGE),
    Kind.SEND_G: ("averaging", 0.0),
    Kind.SEND_P: ("averaging", 0.2),
    Kind.SEND_E: ("averaging", MESSAGE),
}
"""Each kind's hue family, and the share of the page's colour mixed into that hue. Below 0, the opposite page's colour
is mixed in. Averaging consists mainly of messages of gradients (``SEND_G``), so these have the full hue."""
KIND_TINTS |= {receive: KIND_TINTS[send] for receive, send in RECEIVES.items()}
EDGES = {YELLOW: YELLOW_EDGE}
"""Edges of the colours that would be invisible on a white page."""

CONTENT = {
    Kind.SEND_F: "activation",
    Kind.SEND_B: "activation gradient",
    Kind.SEND_G: "gradient to average",
    Kind.SEND_P: "averaged gradient",
    Kind.SEND_E: "tied embedding gradient",
}
"""The content of a message, by the kind of its send."""
KIND_NAMES = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.BACKWARD_INPUT: "backward of inputs",
    Kind.BACKWARD_WEIGHT: "backward of weights",
    Kind.PART: "backward, part",
    Kind.PACK: "compress gradient",
    Kind.REDUCE: "average",
    Kind.STEP: "optimiser step",
    **{send: f"send {CONTENT[send]}" for send in SENDS},
    **{receive: f"receive {CONTENT[send]}" for receive, send in RECEIVES.items()},
}
CAUSE_COLORS = {
    "busy": BLUE,
    "gathering": PURPLE,
    "dependency": GREY,
    "latency": SKY,
    "bandwidth": YELLOW,
    "queue": ORANGE,
    "synchronisation": HUES["averaging"][0],
    "straggler": "#C8283E",
}
"""Colours of what a device spends its time on. Averaging has its own hue, and waiting for a slow device is red."""


def legend_name(kind: Kind) -> str:
    """Return the name of a kind of action in a legend. A message is named by its content at both of its ends."""
    return KIND_NAMES[kind] if kind in COMPUTE else CONTENT[RECEIVES.get(kind, kind)]


def mixed(color: str, other: str, share: float) -> str:
    """Return the colour with this share of another: 0 is the colour itself, 1 is the other."""
    pairs = ((int(color[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(one * (1 - share) + two * share):02X}" for one, two in pairs)


def paler(color: str, share: float) -> str:
    """Return the colour mixed with this share of white: 0 is the colour itself, 1 is white."""
    return mixed(color, "#FFFFFF", share)


def kind_color(kind: Kind, *, dark: bool = False) -> str:
    """Return the colour of a kind of action on a light or a dark page. A receive has the colour of its send."""
    family, share = KIND_TINTS[kind]
    return mixed(HUES[family][dark], PAGES[dark if share >= 0 else not dark], abs(share))


KIND_COLORS = {kind: kind_color(kind) for kind in KIND_TINTS}


def stage_color(stage: int, n_stages: int, *, dark: bool = False) -> str:
    """Return the stage's colour on an ordered ramp from indigo to rose, unique at any number of stages.

    With many stages, neighbours look alike, so the stage's number must be written on it or next to it. The ramp is even
    in OKLCH, see https://bottosson.github.io/posts/oklab. The page draws the same one (theme.js).
    """
    t = stage / (n_stages - 1) if n_stages > 1 else 0.0
    lightness = 0.47 + 0.39 * t if dark else 0.40 + 0.44 * t
    chroma = 0.165 + 0.02 * math.sin(math.pi * t) - 0.07 * t
    return _from_oklch(lightness, chroma, math.radians(285 + 68 * t))


def _from_oklch(lightness: float, chroma: float, hue: float) -> str:
    """Return the colour as hexadecimal sRGB. Channels outside the gamut are clipped."""
    # From Oklab to linear sRGB, by the matrices of its author, Björn Ottosson.
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{_to_byte(min(1.0, max(0.0, channel))):02X}" for channel in linear)


def _to_byte(linear: float) -> int:
    """Return a linear channel from 0 to 1 as a byte of sRGB."""
    return round(255 * (12.92 * linear if linear <= 0.0031308 else 1.055 * linear ** (1 / 2.4) - 0.055))


PLUM_LUMINANCE = 0.007


def ink_on(color: str) -> str:
    """Return white or a dark plum, whichever has more contrast on the colour by WCAG's luminance."""
    channels = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    luminance = sum(share * channel for share, channel in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#1B0F1D" if (luminance + 0.05) ** 2 > 1.05 * (PLUM_LUMINANCE + 0.05) else "#ffffff"
