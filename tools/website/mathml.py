"""Mathematics as MathML, which browsers draw themselves: no script, and nothing from the network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

TAG = re.compile(r"\\tag\{([^}]*)\}")


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    writer.body.append(_mathml(node, block=False))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula of its own, with its number at the right where it has one."""
    number = TAG.search(node.astext())
    said = f'<span class="number">({number[1]})</span>' if number else ""
    writer.body.append(f'<div class="math">{_mathml(node, block=True)}{said}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, *, block: bool) -> str:
    text = TAG.sub("", node.astext())
    try:
        return str(tex2mathml(text, as_block=block))
    except MathError as error:
        logging.getLogger(__name__).warning("formula %s: %s", text, error, location=node)
        return ""
