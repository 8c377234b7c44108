"""A row of large sliders over named stops, each with its value in words."""

import traitlets

from dtfm_lab.widgets.views.view import View


class SlidersView(View):
    """Draws a slider for each entry. The page sets ``values`` while one is moved.

    A double click puts a slider back to its neutral stop.
    """

    sliders = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"key", "label", "rest", "texts", "neutral", "note", "why_not"} of each slider.

    rest continues the label and is left out if there is little room. texts are the names of the stops. neutral is the
    number of the stop that changes nothing. note is shown below. why_not says why the slider cannot be moved, and is
    empty if it can.
    """
    values = traitlets.Dict().tag(sync=True)
    """{key of a slider: number of its current stop}."""
