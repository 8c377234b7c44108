"""The page Words: all words that have an explanation in the lab, with that explanation."""

from html import escape

from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, pane
from dtfm_lab.widgets.markup import WORDS


class WordsPanel(Panel):
    """Lists the glossary in alphabetical order."""

    def __init__(self) -> None:
        words = sorted(WORDS.items(), key=lambda one: one[0].lower())
        rows = "".join(f"<dt>{escape(word)}</dt><dd>{escape(sentence)}</dd>" for word, sentence in words)
        self.view = pane([w.HTML(f'<dl class="dtfm-words" tabindex="0" aria-label="Words">{rows}</dl>')])
