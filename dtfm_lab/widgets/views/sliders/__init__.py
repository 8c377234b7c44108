"""A row of large sliders over named stops, each with its value in words."""

import traitlets

from dtfm_lab.widgets.views.view import View


class SlidersView(View):
    """Draws a slider for each entry. The page sets ``values`` while one is moved.

    A double click puts a slider back to its neutral stop.
    """

    sliders = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"key", "label", "rest", "texts", "neutral", "note", "why_not"} of each slider.

    The rest of its label is left out if there is little room. texts are the names of its stops, neutral is the one that
    changes nothing, note is shown below, and why_not says why it cannot be moved. It is empty if the slider can be
    moved.
    """
    values = traitlets.Dict().tag(sync=True)
    """The number of each slider's stop, by its key."""
