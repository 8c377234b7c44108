"""What a user typed to launch a rival, as that system's strategy: Megatron-LM's flags or the script that gives them, a
DeepSpeed or torchtitan configuration, or accelerate's.

What changes no plan is left out and listed; a setting that would change one, and has no model here, is named, so that
nobody compares with another plan than the one that was meant.
"""

import re

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.extensions.systems.launches import accelerate, deepspeed, megatron, torchtitan
from dtfm_lab.extensions.systems.launches.launch import Launch
from dtfm_lab.extensions.systems.launches.shell import is_script
from dtfm_lab.files.reading import reason_of

YAML = re.compile(r"(?m)^(?:compute_environment|distributed_type|fsdp_config|deepspeed_config|mixed_precision)\s*:")

MOST_CHARACTERS = 100_000
"""Longest text of a launch. Some of what is looked for takes time that grows with the square of a text's length."""


def from_flags(text: str) -> Launch:
    """The launch that a text describes.

    Flags of Megatron-LM, after ``torchrun`` and the script's name or not, or in a shell script; a DeepSpeed
    configuration, from ``{`` on; a torchtitan configuration, from a ``[section]`` on, or as Python; accelerate's YAML.

    Raises LabError that names the flags that are not known, what has no model, and values that are none.
    """
    if not isinstance(text, str):
        raise LabError(f"flags are {shortened(text)}; wanted text")
    if len(text) > MOST_CHARACTERS:
        raise LabError(f"the launch has {len(text):,} characters; wanted {MOST_CHARACTERS:,} or less")
    try:
        return _read(text)
    except LabError:
        raise
    except RecursionError:
        raise LabError("the launch is nested too deeply; wanted one that a person wrote") from None
    except ValueError as error:  # such as a number of thousands of digits, or the 40th of a month
        raise LabError(f"the launch cannot be read: {reason_of(error)}; wanted another value") from None


def _read(text: str) -> Launch:
    words = text.strip().removeprefix("\ufeff")
    begin = re.sub(r"(?m)^\s*(#|//).*\n?", "", words).lstrip()
    if torchtitan.is_python(words):
        return torchtitan.read_python(words)
    if is_script(words) and not torchtitan.is_toml(begin) and not begin.startswith("{") and not YAML.search(begin):
        return megatron.read_shell(words)
    if begin.startswith("{"):
        return deepspeed.read_text(words)
    if torchtitan.is_toml(begin):
        return torchtitan.read_toml(words)
    if YAML.search(words):
        return accelerate.read_text(words)
    return megatron.read_words(words)


__all__ = ["Launch", "from_flags"]
