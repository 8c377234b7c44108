"""Controls that several panels use."""

from __future__ import annotations

from pathlib import Path

import ipywidgets as w


def button(
    text: str, icon: str, tooltip: str, width: str = "105px", *, style: str = "", disabled: bool = False
) -> w.Button:
    """Return a button of one height; ``style`` is a name of ipywidgets, such as primary."""
    layout = w.Layout(width=width)
    return w.Button(description=text, icon=icon, tooltip=tooltip, button_style=style, disabled=disabled, layout=layout)


def icon_button(icon: str, tooltip: str) -> w.Button:
    """Return a narrow button without text."""
    return w.Button(icon=icon, tooltip=tooltip, layout=w.Layout(width="40px", flex="none"))


def show(widget: w.DOMWidget, shown: bool) -> None:
    """Show the widget, or take it out of the layout."""
    widget.layout.display = "" if shown else "none"


def mark(widget: w.DOMWidget, css_class: str, marked: bool) -> None:
    """Add the CSS class to the widget, or remove it."""
    (widget.add_class if marked else widget.remove_class)(css_class)


def stylesheet(path: Path) -> w.HTML:
    """Return an invisible widget that brings a file's CSS to the page."""
    return w.HTML(f"<style>{path.read_text(encoding='utf-8')}</style>", layout=w.Layout(display="none"))
