"""A picture that can be copied and saved."""

import traitlets

from dtfm_lab.widgets.views.view import View


class CardView(View):
    """Shows an SVG. The page's styles colour it by its classes. Buttons copy it as a PNG or save it as an SVG, on
    white."""

    svg = traitlets.Unicode("").tag(sync=True)
    """The picture as SVG text. Empty for no picture."""
    words = traitlets.Unicode("").tag(sync=True)
    """The picture's sentence, for screen readers and for copying as text."""
    name = traitlets.Unicode("card").tag(sync=True)
    """Name of the saved file, without its ending."""

    def alt_text(self) -> str:
        return self.words
