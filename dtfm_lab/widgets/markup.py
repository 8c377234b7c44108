"""Small pieces of HTML that follow JupyterLab's theme, and the field's words with their explanations."""

import base64
import re
from html import escape
from pathlib import Path

import pandas as pd

from dtfm_lab.domain.extension import offered

LINKS = ("https://", "http://")
"""Prefixes of link targets that open in a new tab."""
HERE = Path(__file__).parent
CSS = (HERE / "lab.css").read_text(encoding="utf-8")
"""Styles that all panels share."""
PANES_CSS = "".join(
    path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*/*.css")) if path.parent.name != "static"
)
"""Styles of the panes. They load with the lab, so a pane looks right when it is first shown."""


def line(text: str, kind: str = "note") -> str:
    """Return one line of HTML: a ``note``, ``warning``, ``figure`` or ``stale``. Empty for no text."""
    return f'<div class="dtfm-line dtfm-{kind}" role="status">{text}</div>' if text else ""


def warning(text: str) -> str:
    """Return a line with a warning sign. Empty for no text."""
    if not text:
        return ""
    sign = (
        '<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d="M8 1.2 15.4 14.5H.6Z"/>'
        '<path class="dtfm-sign-mark" d="M8 6v4M8 11.9v1.2"/></svg>'
    )
    return f'<div class="dtfm-line dtfm-alarm" role="alert">{sign}<span>{escape(text)}</span></div>'


def table(frame: pd.DataFrame, css_class: str, label: str) -> str:
    """Return a table whose cells are HTML, with this CSS class. Screen readers read ``label``."""
    known = frame.astype(object).where(frame.notna(), "–")
    html = known.to_html(index=False, border=0, classes=css_class, escape=False, justify="unset")
    # it scrolls, so the keyboard must be able to reach it
    return f'<div class="dtfm-table" tabindex="0" role="region" aria-label="{label}">{html}</div>'


def quotation(prompt: str, text: str) -> str:
    return f'<div class="dtfm-written"><b>{escape(prompt)}</b>{escape(text)}</div>'


def download(name: str, file_name: str, data: bytes, content_type: str) -> str:
    """Return a link that saves the data as a file, without a server."""
    encoded = base64.b64encode(data).decode("ascii")
    return (
        f'<a class="dtfm-download" download="{escape(file_name)}" href="data:{content_type};base64,{encoded}">'
        f"{escape(name)}</a>"
    )


def markdown(text: str) -> str:
    """Return the subset of Markdown that tasks and hints use as HTML. Everything else stays as it is.

    Paragraphs, lists, code blocks, ``code``, **bold**, *emphasis* and links.
    """
    blocks = []
    # Parts with an odd number are between two lines of backticks.
    for number, part in enumerate(re.split(r"^```.*$", text, flags=re.MULTILINE)):
        if number % 2:
            blocks.append(f"<pre><code>{escape(part.strip(chr(10)))}</code></pre>")
        else:
            blocks += [_block(block) for block in re.split(r"\n\s*\n", part) if block.strip()]
    return "".join(blocks)


def _block(block: str) -> str:
    lines = block.strip().splitlines()
    for mark, tag in ((r"[-*] ", "ul"), (r"\d+\. ", "ol")):
        if re.match(mark, lines[0]):
            items = re.split(rf"^\s*{mark}", "\n".join(lines), flags=re.MULTILINE)[1:]
            return f"<{tag}>{''.join(f'<li>{inline_markdown(item)}</li>' for item in items)}</{tag}>"
    return f"<p>{inline_markdown(' '.join(line.strip() for line in lines))}</p>"


def inline_markdown(text: str) -> str:
    """Return one line of Markdown as HTML. Text between backticks is not interpreted."""
    # The pattern has two groups, so every third part is outside of backticks.
    parts = re.split(r"(`+)(.+?)\1", text)
    html = ""
    for number in range(0, len(parts), 3):
        html += _words(escape(parts[number]))
        if number + 2 < len(parts):
            html += f"<code>{escape(parts[number + 2].strip())}</code>"
    return html


def _words(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    # Not next to letters or digits, so that 2*3*4 stays as it is.
    text = re.sub(r"(?<!\w)\*([^*\s][^*]*?)\*(?!\w)", r"<i>\1</i>", text)
    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", _link, text)


def _link(found: re.Match[str]) -> str:
    """Return the HTML of a link that opens in a new tab. A link to a file becomes plain words, because a notebook does
    not know where the file is."""
    words, target = found.groups()
    link = f'<a href="{target}" target="_blank" rel="noopener noreferrer">{words}</a>'
    return link if target.startswith(LINKS) else str(words)


WORDS = {
    "activation": "What a stage sends to the next one for a micro-batch. Its gradient comes back over the same link.",
    "averaging": "The devices that hold the same stage exchange their gradients, so that all take the same step.",
    "backward": "The pass from the last stage to the first that computes gradients: about twice a forward's work.",
    "bandwidth": "Bits per second that a link carries. Large messages are slow on a link with little bandwidth.",
    "batch": "The sequences, or samples, of one iteration, summed over all replicas.",
    "bound": "Lower bound: a time, or cost, that no plan can beat. It is proven, and rises while a search runs.",
    "bubble": "Time in which a stage has nothing to compute because its pipeline is filling or draining.",
    "clock": (
        "How a run computes and waits: for real on this machine, or for as long as the network's devices and links "
        "are predicted to take."
    ),
    "communication cost": (
        "The slowest group's averaging plus the path through the pipeline, in seconds. It leaves out computation."
    ),
    "compression": "Messages are rounded to fewer bits. They travel faster, but encoding and decoding take time.",
    "critical path": "The chain of actions and messages without idle time in between. Only shortening it helps.",
    "data-parallel group": "The devices that hold the same stage in all replicas. They average their gradients.",
    "device": "One accelerator that can hold one stage.",
    "error": "Measured minus predicted: plus means longer than predicted. Percentages are of the prediction.",
    "forward": "The pass from the first stage to the last that computes the model's output.",
    "frontier": "The plans that no other plan beats in both time and price.",
    "gap": "Share of a plan's cost that is above its lower bound. At 20 %, no plan in this shape saves more than 20 %.",
    "gathering": "Fetching parameters that are sharded over replicas just before a layer uses them: ZeRO-3, FSDP.",
    "gradient": "How each parameter should change. It is as large as the parameters.",
    "hop": "The step from a stage to the next one, over which activations go forward and their gradients back.",
    "iteration": "One training step: every micro-batch forward and backward, averaging, and the optimizer step.",
    "latency": "The time that a message of one bit takes. Many small messages are slow on a link with high latency.",
    "micro-batch": "A part of a replica's batch. The batch is split so that all stages have something to compute.",
    "mutation": "In the evolutionary search: two random devices swap places.",
    "optimizer step": "The averaged gradient updates the parameters. This ends an iteration.",
    "crossover": "In the evolutionary search: a child takes its groups from two parents.",
    "pipeline": "A chain of devices that holds each stage once. Activations go down it, gradients come back up.",
    "placement": "The stage and the replica that each device holds.",
    "plan": "A placement with its cost and a lower bound that no plan can beat.",
    "population": "In the evolutionary search: the placements that it keeps and combines.",
    "prediction": "The schedule simulated with the speeds of the devices and links.",
    "profile": "How long each stage's forward and backward really take, measured on one device of each kind.",
    "queue": "Messages that wait until earlier ones on the same link or NIC are sent.",
    "queueing": "How messages share a wire: each pair of devices has its own link, or each device has one NIC for all.",
    "recompute": "A device keeps only its input and recomputes the rest for the backward: less memory, more work.",
    "refit": "Device speeds and link numbers that explain what was measured, and the network with them.",
    "replica": "One pipeline, with its own copy of the model and its own share of the batch.",
    "residual": "Measured minus predicted, for one device or link.",
    "schedule": "The order in which each device runs its forward and backward passes.",
    "1f1b": "A schedule: after a few forwards, one backward after every forward. It holds few activations.",
    "gpipe": "A schedule: all forwards, then all backwards. It holds the activations of the whole batch.",
    "seed": "The number that random choices start from. The same seed gives the same search.",
    "share": "The micro-batches that one pipeline processes per iteration. A fast pipeline may get more.",
    "sharded": "Each device of a group averages one slice of the gradient, and sends the result to the others.",
    "central": "One device of a group averages all gradients, and sends the result to the others.",
    "ring": "Slices of the gradient go round the devices of a group, and each device adds its own.",
    "tree": "Devices of a group add up gradients in pairs, up a tree, then the average goes down again.",
    "local updates": "Replicas train on their own and average only every H iterations.",
    "stage": "Consecutive layers of the model. A device holds one stage.",
    "staleness": "Something changed after this was computed, so it is out of date.",
    "straggler": "A device or link that makes the others wait, because it is slower than they are.",
    "suspect": "The device or link that explains most of the error.",
    "synchronisation": "How and how often the devices of a stage average their gradients.",
    "throughput": "Training tokens per second.",
}
"""{word: one-sentence explanation}, without obvious words. docs/glossary.md says more."""
# An extension may add words, but not change the lab's words.
WORDS |= {word: sentence for word, sentence in offered("words").items() if word not in WORDS}
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
"""Other forms of a word that can be looked up. A plural s is dropped without an entry."""


def meaning(word: str) -> str:
    """Return the sentence that explains a word in any of its forms. Empty for an unknown word."""
    key = word.strip().lower()
    for form in (key, ALSO.get(key, ""), key.removesuffix("s")):
        if form in WORDS:
            return WORDS[form]
    return ""


def word(term: str, text: str = "") -> str:
    """Return HTML of a word that shows its explanation on hover and focus. ``text`` replaces the word on the screen."""
    return f'<span class="dtfm-word" data-word="{escape(term)}" tabindex="0">{escape(text or term)}</span>'
