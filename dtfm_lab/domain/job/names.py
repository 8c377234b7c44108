"""Names of models as people type them: the hub's own spellings, nicknames, and the known names that are nearest.

A hub's name is a known model where it differs in what does not change the architecture: the organisation before it,
case, dots and dashes, and words such as ``Instruct``.
"""

import re
from collections.abc import Collection
from difflib import SequenceMatcher
from itertools import takewhile

from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.registry import MOST_SHOWN, NAME_SHOWN, in_a_row

NICKNAMES = {
    **{"gpt2": "gpt2-small", "gpt2-124m": "gpt2-small", "gpt2-117m": "gpt2-small"},  # the hub's gpt2 is the small one
    **{"gpt2-355m": "gpt2-medium", "gpt2-345m": "gpt2-medium", "gpt2-774m": "gpt2-large", "gpt2-1.5b": "gpt2-xl"},
    **{"gpt3": "gpt3-175b", "gpt3-1.3b": "gpt3-xl", "llama-33b": "llama-30b", "llama-1-7b": "llama-7b"},
    **{"llama-1-13b": "llama-13b", "llama-1-30b": "llama-30b", "llama-1-33b": "llama-30b", "llama-1-65b": "llama-65b"},
    **{"mistral-nemo": "mistral-nemo-12b"},
    **{"smollm-135m": "smollm2-135m", "smollm-360m": "smollm2-360m", "smollm-1.7b": "smollm2-1.7b"},
    **{"deepseek-r1": "deepseek-v3", "deepseek-r1-zero": "deepseek-v3", "deepseek-v3.1": "deepseek-v3"},
    **{"deepseek-v2.5": "deepseek-v2", "deepseek-r1-distill-llama-8b": "llama-3.1-8b"},
    **{"deepseek-r1-distill-llama-70b": "llama-3.3-70b"},
}
"""Names of known architectures that are written otherwise."""
FINE_TUNED = {"instruct", "base", "hf", "chat", "it", "thinking", "coder"}
"""Words of a name that tell what a model was trained for, and nothing of its architecture."""
RELEASES = re.compile(r"v0\.1|v0\.2|v1\.0|\d{4}|\d{6}")
"""Words that tell when. Mistral's v0.3 has another vocabulary, and is a model of its own."""
LEAST_ALIKE, LEAST_OF_FAMILY = 0.75, 0.45
"""Likeness from which a known name is suggested: any, and one that begins with the same word."""
ABOUT_AS_ALIKE = 0.15
"""Less than this behind the most alike, others are suggested beside it."""
MOST_SUGGESTED = 4
OTHER_MODELS = "another model is read from its config.json (model=PATH) or planned with --module FILE.PY:FUNCTION"


def model_named(given: str, known: Collection[str]) -> str:
    """The known name for what was given, such as ``meta-llama/Llama-3.1-8B-Instruct``, or what was given."""
    if given in known:
        return given
    name = given.strip().casefold()
    if name.count("/") > 1 or name.startswith((".", "/", "~")) or re.search(r"\.(json|ya?ml)$|\\", name):
        return given
    names = {_key(nickname): model for nickname, model in NICKNAMES.items() if model in known}
    names |= {_key(each): each for each in known}
    words = [word for word in re.split(r"[-_ :]+", name.rpartition("/")[2]) if word]
    words = words[1:] if words[:1] == ["meta"] else words
    undated = [word for word in words if not RELEASES.fullmatch(word)]
    for kept in (words, undated, *([w for w in some if w not in FINE_TUNED] for some in (words, undated))):
        if kept and (found := names.get(_key("-".join(kept)))) is not None:
            return found
    return given


def unknown_model(noun: str, given: object, known: Collection[str]) -> UnknownName:
    """The error for the name of a model, or of its job, that is not known; names those that are nearest."""
    name = str(given)
    near = [repr(each) for each in _nearest(name, known)]
    hint = f"did you mean {', '.join(near)}? " if near else ""
    other = "" if near else f"; {OTHER_MODELS}"
    shown = name if len(name) <= NAME_SHOWN else name[: NAME_SHOWN - 3] + "..."
    return UnknownName(
        f"no {noun} named {shown!r}; {hint}known: {in_a_row(sorted(known), MOST_SHOWN) or 'none'}{other}"
    )


def _key(name: str) -> tuple[str, ...]:
    """The words and numbers of a name, however they are joined: of ``Llama-3.1-8B`` llama, 3, 1, 8, b."""
    return tuple(re.findall(r"[a-z]+|\d+", name.casefold()))


def _nearest(name: str, known: Collection[str]) -> list[str]:
    """The known names that are most like this one, the most alike first."""
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
