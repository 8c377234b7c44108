"""A picture that can be copied and saved."""

import traitlets

from dtfm_lab.widgets.views.view import View


class CardView(View):
    """Shows an SVG, in the page's colours by its classes. It is copied as a PNG and saved as an SVG, on white."""

    svg = traitlets.Unicode("").tag(sync=True)
    """The picture. Empty for none."""
    words = traitlets.Unicode("").tag(sync=True)
    """Its sentence, to be copied as text and read aloud."""
    name = traitlets.Unicode("card").tag(sync=True)
    """Name of the saved file, without its ending."""

    def alt_text(self) -> str:
        return self.words
