"""Small pieces of HTML that follow JupyterLab's theme, and the field's words with their explanations."""

import base64
import re
from html import escape
from pathlib import Path

import pandas as pd

from dtfm_lab.domain.extension import offered

LINKS = ("https://", "http://")
"""How the targets of links begin that are opened beside the lab."""
HERE = Path(__file__).parent
CSS = (HERE / "lab.css").read_text(encoding="utf-8")
"""The style that all panels share."""
PANES_CSS = "".join(
    path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*/*.css")) if path.parent.name != "static"
)
"""The styles of the panes: with the lab from its beginning, so that a pane stands as it is when it is first shown."""


def line(text: str, kind: str = "note") -> str:
    """Return one line of HTML, a ``note``, ``warning``, ``figure`` or ``stale``; empty for no text."""
    return f'<div class="dtfm-line dtfm-{kind}" role="status">{text}</div>' if text else ""


def warning(text: str) -> str:
    """Return a line with a warning sign; empty for no text."""
    if not text:
        return ""
    sign = (
        '<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d="M8 1.2 15.4 14.5H.6Z"/>'
        '<path class="dtfm-sign-mark" d="M8 6v4M8 11.9v1.2"/></svg>'
    )
    return f'<div class="dtfm-line dtfm-alarm" role="alert">{sign}<span>{escape(text)}</span></div>'


def table(frame: pd.DataFrame, css_class: str, label: str) -> str:
    """Return a table whose cells are HTML, with this CSS class; ``label`` is what is read out."""
    known = frame.astype(object).where(frame.notna(), "–")
    html = known.to_html(index=False, border=0, classes=css_class, escape=False, justify="unset")
    # it scrolls, so keys must reach it
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
    """Return as HTML the little of Markdown that tasks and hints are written in; everything else as it stands.

    Paragraphs, lists, code blocks, ``code``, **bold**, *emphasis* and links.
    """
    blocks = []
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
    """Return one line of Markdown as HTML; what is between backticks is left as it is."""
    parts = re.split(r"(`+)(.+?)\1", text)
    html = ""
    for number in range(0, len(parts), 3):
        html += _words(escape(parts[number]))
        if number + 2 < len(parts):
            html += f"<code>{escape(parts[number + 2].strip())}</code>"
    return html


def _words(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    text = re.sub(r"(?<!\w)\*([^*\s][^*]*?)\*(?!\w)", r"<i>\1</i>", text)
    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", _link, text)


def _link(found: re.Match[str]) -> str:
    """A link to another site opens beside the lab; of one to a file, whose place is not known here, the words stay."""
    words, target = found.groups()
    link = f'<a href="{target}" target="_blank" rel="noopener noreferrer">{words}</a>'
    return link if target.startswith(LINKS) else str(words)


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
    "queue": "Messages that wait because others are sent before them on the same link or NIC.",
    "queueing": "How messages share a wire: each pair of devices has its own, or all of a device's messages one NIC.",
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
    "synchronisation": "How and how often the devices of a stage average their gradients.",
    "throughput": "Tokens that are trained on in a second.",
}
"""{word: one sentence}, without a word that is obvious. docs/glossary.md says more."""
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
