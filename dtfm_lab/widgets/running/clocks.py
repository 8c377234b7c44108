"""The three clocks of a run, explained where one is chosen."""

from html import escape
from typing import NamedTuple

from dtfm_lab.figures.theme import count
from dtfm_lab.widgets import markup


class ClockWords(NamedTuple):
    """The texts about one clock: a sentence, and its row in the table."""

    sentence: str
    measures: str
    not_measured: str
    take_it: str


CLOCKS = {
    "virtual": ClockWords(
        "no waiting: each worker adds its own CPU time and the drawn links' seconds to a logical clock",
        "CPU seconds of this machine's computations",
        "waits for cores, and links: messages take what the link model says",
        "by default: quick, and right on a busy or small machine",
    ),
    "paced": ClockWords(
        "in real time, slowed down so that this machine keeps up: a computation lasts as on the drawn device",
        "whether schedule, transport and this machine keep up: what comes late is counted",
        "computations and messages: they take what the drawn device and the link model say",
        "to watch a pipeline as it would go, and what is late is counted",
    ),
    "real": ClockWords(
        "this machine as it is: wall time, loopback instead of the drawn links",
        "wall seconds, waits for cores and for loopback included",
        "the drawn links: messages take what this machine takes",
        "with a core, or a GPU, for every worker",
    ),
}
NAMES = ("Clock: CPU time", "Clock: as drawn", "Clock: wall time")
"""What the clocks are called in the menu, in the order of ``RUN_CLOCKS``."""
HEAD = ("clock", "measures", "does not measure", "take it")


def explained(clock: str, workers: int | None, cores: int) -> str:
    """Return the chosen clock in a sentence, what this machine's cores mean for it, and a table of all three."""
    chosen = markup.line(f"<b>{escape(clock)}</b>: {escape(CLOCKS[clock].sentence)}.")
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in HEAD)
    rows = "".join(_row(name, words, chosen=name == clock) for name, words in CLOCKS.items())
    table = f'<table class="dtfm-clocks"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    here = markup.line(escape(on_this_machine(clock, workers, cores)))
    all_three = f"<summary>The three clocks side by side</summary>{table}"
    return f'{chosen}{here}<details class="dtfm-clocks-all">{all_three}</details>'


def on_this_machine(clock: str, workers: int | None, cores: int) -> str:
    """Return ``8 workers share 2 cores: each counts its own CPU time, so that waiting does not count``."""
    if workers is None:
        return ""
    if workers <= cores:
        return f"Here: {count(workers, 'worker')} on {count(cores, 'core')}, none waits for another's."
    what = {
        "virtual": "each counts its own CPU time, so waiting for a core does not count",
        "paced": "time is slowed down until their work fits, and what is late all the same is counted",
        "real": "waiting for a core counts as computing, and the prediction cannot know of it",
    }[clock]
    return f"Here: {count(workers, 'worker')} share {count(cores, 'core')}: {what}."


def _row(name: str, words: ClockWords, *, chosen: bool) -> str:
    current = ' aria-current="true"' if chosen else ""
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in words[1:])
    return f'<tr{current}><th scope="row">{escape(name)}</th>{cells}</tr>'
