"""Model names as people type them: the hub's spellings, nicknames, and suggestions for unknown names.

A hub's name matches a known model if it differs only in things that do not change the architecture: the organisation,
case, dots and dashes, and words such as ``Instruct``.
"""

import re
from collections.abc import Collection
from difflib import SequenceMatcher
from itertools import takewhile

from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.job.presets import NICKNAMES
from dtfm_lab.domain.registry import MOST_SHOWN, NAME_SHOWN, in_a_row

FINE_TUNED = {"instruct", "base", "hf", "chat", "it", "thinking", "coder"}
"""Words that say what a model was tuned for, and nothing about its architecture."""
RELEASES = re.compile(r"v0\.1|v0\.2|v1\.0|\d{4}|\d{6}")
"""Words that say when a model was released. They are dropped from a name that is not found. v0.3 is not listed, because
Mistral's v0.3 has another vocabulary and is a separate model."""
LEAST_ALIKE = 0.75
"""Minimum similarity for a suggestion, from 0 to 1, if it begins with another word than the unknown name."""
LEAST_OF_FAMILY = 0.45
"""Minimum similarity for a suggestion that begins with the same word."""
ABOUT_AS_ALIKE = 0.15
"""Names whose similarity is within this of the best one are suggested too."""
MOST_SUGGESTED = 4
OTHER_MODELS = "another model is read from its config.json (model=PATH) or planned with --module FILE.PY:FUNCTION"


def model_named(given: str, known: Collection[str]) -> str:
    """Return the known name for input such as ``meta-llama/Llama-3.1-8B-Instruct``, or the input itself if no name
    matches."""
    if given in known:
        return given
    name = given.strip().casefold()
    # A path, not a name.
    if name.count("/") > 1 or name.startswith((".", "/", "~")) or re.search(r"\.(json|ya?ml)$|\\", name):
        return given
    names = {_key(nickname): model for nickname, model in NICKNAMES.items() if model in known}
    names |= {_key(each): each for each in known}
    words = [word for word in re.split(r"[-_ :]+", name.rpartition("/")[2]) if word]
    # Hugging Face names Llamas both with and without their maker.
    words = words[1:] if words[:1] == ["meta"] else words
    undated = [word for word in words if not RELEASES.fullmatch(word)]
    # As given first, then without dates and words of fine-tuning, whose shape is the same.
    for kept in (words, undated, *([w for w in some if w not in FINE_TUNED] for some in (words, undated))):
        if kept and (found := names.get(_key("-".join(kept)))) is not None:
            return found
    return given


def unknown_model(noun: str, given: object, known: Collection[str]) -> UnknownName:
    """Return the error for an unknown name of a model or job. It suggests the most similar known names, and lists known
    ones."""
    name = str(given)
    near = [repr(each) for each in _nearest(name, known)]
    hint = f"did you mean {', '.join(near)}? " if near else ""
    other = "" if near else f"; {OTHER_MODELS}"
    shown = name if len(name) <= NAME_SHOWN else name[: NAME_SHOWN - 3] + "..."
    return UnknownName(
        f"no {noun} named {shown!r}; {hint}known: {in_a_row(sorted(known), MOST_SHOWN) or 'none'}{other}"
    )


def _key(name: str) -> tuple[str, ...]:
    """Return the words and numbers of a name, however they are joined: llama, 3, 1, 8, b for ``Llama-3.1-8B``."""
    return tuple(re.findall(r"[a-z]+|\d+", name.casefold()))


def _nearest(name: str, known: Collection[str]) -> list[str]:
    """Return up to ``MOST_SUGGESTED`` known names similar to this one. Names with the most equal parts at the beginning
    come first, then the most similar ones."""
    own = _key(name[:NAME_SHOWN].rpartition("/")[2])
    found = []
    for each in sorted(known):
        key = _key(each)
        alike = SequenceMatcher(None, "".join(own), "".join(key)).ratio()
        if alike >= (LEAST_OF_FAMILY if own[:1] == key[:1] else LEAST_ALIKE):
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own, key, strict=False)))
            found.append((-common, -alike, each))
    best = max((-alike for _, alike, _ in found), default=0.0)
    return [each for _, alike, each in sorted(found) if -alike >= best - ABOUT_AS_ALIKE][:MOST_SUGGESTED]
