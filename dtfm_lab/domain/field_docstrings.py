"""The strings below the fields of a class, which Python itself does not keep."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache


@cache
def field_docstrings(kind: type) -> dict[str, str]:
    """Field of a class -> the string below it, those of its bases included; fields without one are left out."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(each))
        except (OSError, TypeError):  # made at run time, or built in
            continue
        found |= _below_fields(ast.parse(source))
    return found


def _below_fields(tree: ast.Module) -> dict[str, str]:
    [definition] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    found = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            assert isinstance(field.target, ast.Name), "fields are plain names"
            found[field.target.id] = inspect.cleandoc(text.value)
    return found
