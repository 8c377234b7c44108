"""What a figure's traces hold, read as a browser would."""

import base64
import re

import numpy as np

FIELD = re.compile(r"%\{(\w+)(?:\[(\d+)\])?(?::([^}]*))?\}")


def array(value):
    """Numbers that plotly keeps as they are, or already as it writes them down."""
    if not isinstance(value, dict):
        return np.asarray(value)
    flat = np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"])
    return flat.reshape([int(n) for n in str(value.get("shape", flat.size)).split(",")])


def trace(figure, name):
    """The first trace of this name."""
    return next(each for each in figure.data if each.name == name)


def lines(trace):
    """(n, 2) of each line of a trace, between lifts of the pen."""
    points = np.column_stack([array(trace.x), array(trace.y)]).astype(float)
    ends = np.flatnonzero(np.isnan(points[:, 0]))
    assert (np.isnan(points[:, 0]) == np.isnan(points[:, 1])).all()
    return [piece[~np.isnan(piece[:, 0])] for piece in np.split(points, ends) if (~np.isnan(piece[:, 0])).any()]


def said(trace, at, **fields):
    """The words of a trace's point or bar; ``fields`` are those that axes give."""
    template = trace.hovertemplate if isinstance(trace.hovertemplate, str) else trace.hovertemplate[at]

    def filled(field):
        name, index, written = field.groups()
        value = trace.meta if name == "meta" else fields[name] if name in fields else array(trace[name])[at]
        value = value[int(index)] if index else value
        if not written:
            return f"{value:g}" if isinstance(value, np.number) else str(value)
        # d3's "4~r" and "4~g" are Python's "4g"
        return format(float(value), written.replace("~r", "g").replace("~g", "g"))

    return FIELD.sub(filled, template).removesuffix("<extra></extra>")


def said_all_along(trace):
    """Different words of a trace of lines, each of them at every point of its line."""
    words = [trace.meta[int(FIELD.fullmatch(template).group(2))] for template in trace.hovertemplate]
    lifted = np.isnan(array(trace.x))
    assert len(words) == len(lifted)
    assert set(words) == set(trace.meta)
    return set(words)
