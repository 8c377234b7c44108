"""Read how a user launches another system, as that system's strategy.

A launch is Megatron-LM's flags or the script that passes them, or a configuration of DeepSpeed, torchtitan or
accelerate. Settings that change no plan are ignored and listed. A setting that would change the plan, but has no model
here, raises an error that names it. So users never compare with a plan other than the intended one.
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
"""Maximum length of a launch's text. Some searches take time that grows with the square of the length."""


def from_flags(text: str) -> Launch:
    """Return the launch that a text describes.

    The text is one of four kinds:

    - flags of Megatron-LM, alone, after ``torchrun`` and a script's name, or in a shell script
    - a DeepSpeed configuration, starting with ``{``
    - a torchtitan configuration, starting with a ``[section]``, or in Python
    - accelerate's YAML

    Raises LabError that names unknown flags, settings without a model, and invalid values.
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
    except ValueError as error:  # such as a number with thousands of digits, or an impossible date
        raise LabError(f"the launch cannot be read: {reason_of(error)}; wanted another value") from None


def _read(text: str) -> Launch:
    words = text.strip().removeprefix("\ufeff")
    begin = re.sub(r"(?m)^\s*(#|//).*\n?", "", words).lstrip()
    if torchtitan.is_python(words):
        return torchtitan.read_python(words)
    # a configuration whose values contain flags can look like a script, so its own marks count first
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
