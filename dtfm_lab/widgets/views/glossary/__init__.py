"""The lab's hover glossary: a sentence at every marked word, and a list of all words at the key ?."""

import traitlets

from dtfm_lab.widgets.views.view import View
from dtfm_lab.widgets.words import ALSO, WORDS


class Glossary(View):
    """Explains every element of the page with ``data-word`` on hover and focus; ``is_open`` lists all.

    Views mark words with ``word`` of js/shared/words.js, panels with ``dtfm_lab.widgets.words.word``. One glossary
    serves the whole lab.
    """

    words = traitlets.Dict(WORDS).tag(sync=True)
    also = traitlets.Dict(ALSO).tag(sync=True)
    is_open = traitlets.Bool(False).tag(sync=True)

    def alt_text(self) -> str:
        return f"{len(self.words)} words explained"
