"""A row of large sliders over named stops, each with its value in words."""

import traitlets

from dtfm_lab.widgets.views.view import View


class SlidersView(View):
    """Draws a slider for each entry; the page sets ``values`` while one is moved.

    A double click puts a slider back to its neutral stop.
    """

    sliders = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"key", "label", "rest", "texts", "neutral", "note", "why_not"} of each slider: the rest of its label, which is
    left out where there is little room, what its stops are called, which of them changes nothing, a few words below,
    and why it cannot be moved, empty where it can."""
    values = traitlets.Dict().tag(sync=True)
    """{key: number of the stop that it is at}"""

    def alt_text(self) -> str:
        told = (
            f"{slider['label']} {slider['texts'][self.values.get(slider['key'], slider['neutral'])]}"
            for slider in self.sliders
            if slider["texts"]
        )
        return ", ".join(told)
