"""A mystery run: the user guesses the link or device that is secretly slow, and learns if the guess is right."""

from collections.abc import Callable
from html import escape

from dtfm_lab.compare import Comparison
from dtfm_lab.domain.trace import LINK_SEPARATOR
from dtfm_lab.runtime.client.launch import Secret
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button, classed, show
from dtfm_lab.widgets.lab_state import LabState

ASKS = "What is slow? Select a device or link on the network, or a row of the residuals"
FOUND = "🟩"
"""Square of a score for a right guess."""
NEAR = "🟨"
"""Square for a wrong guess next to the secret."""
WRONG = "⬛"
"""Square for any other wrong guess."""
REVEALED = "🟥"
"""Square for giving up."""


class MysteryControls:
    """``view`` has a button to guess the selection, one to give up, and a line with the answer."""

    def __init__(self, lab_state: LabState, tell: Callable[[str], None]) -> None:
        """``tell`` is called with every answer."""
        self._lab_state, self._tell = lab_state, tell
        self._secret: Secret | None = None
        self._title, self._squares = "", ""
        self.tries = 0
        self.name = button("Guess this one", "", ASKS, "auto")
        self.reveal = button("Reveal", "", "Give up and show the answer", "auto")
        self.line = w.HTML(layout=w.Layout(min_width="0", flex="1 1 0"))
        self.view = classed(w.HBox([self.name, self.reveal, self.line]), "dtfm-mystery")
        self.name.on_click(lambda _: self._guess())
        self.reveal.on_click(lambda _: self._give_up())
        lab_state.observe(lambda _: self._follow(), ["selected", "selected_link", "is_mystery"])
        self._follow()

    def begin(self, secret: Secret | None, title: str = "") -> None:
        """Begin a mystery with this secret. None ends it. With a title, there is a score to share at the end."""
        self._secret, self.tries = secret, 0
        self._title, self._squares = title, ""
        self._lab_state.is_mystery = secret is not None
        self._follow()

    @property
    def candidate(self) -> tuple[str, str] | None:
        """The selection as ("link", "a -> b") or ("device", "a"). None for nothing, or for several devices."""
        state = self._lab_state
        if len(state.selected_link) == 2:
            return "link", LINK_SEPARATOR.join(state.selected_link)
        return ("device", str(state.selected[0])) if len(state.selected) == 1 else None

    def _guess(self) -> None:
        candidate, secret = self.candidate, self._secret
        if candidate is None or secret is None:
            return
        self._squares += square_of(candidate, secret)
        if is_it(candidate, secret):
            self._end(f"yes, it is {described(secret)}, found on try {self.tries + 1}")
        else:
            evidence = evidence_of(self._lab_state.comparison, *candidate)
            self._say(f"no, it is not {arrow(candidate[1])}{evidence}")
        self.tries += 1  # last, so that any thread that sees this number also sees the answer

    def _give_up(self) -> None:
        if self._secret is not None:
            self._squares += REVEALED
            self._end(f"it was {described(self._secret)}, revealed after {_tries(self.tries)}")

    def _end(self, answer: str) -> None:
        secret, self._secret = self._secret, None
        assert secret is not None
        self._say(answer)
        self._lab_state.is_mystery = False
        self._lab_state.set_note("compare", f"Mystery: {answer}.")
        # Shown at once in all pictures, so that the evidence can be seen.
        link = tuple(secret.name.split(LINK_SEPARATOR)) if secret.of == "link" else ()
        self._lab_state.selected_link, self._lab_state.selected = link, () if link else (secret.name,)

    def _say(self, answer: str) -> None:
        self._tell(f"mystery: {answer}")
        said = escape(f"{answer[:1].upper()}{answer[1:]}.")
        if self._title and self._secret is None:
            score = escape(self.score)
            said += f' Share your score: <input readonly class="dtfm-share" aria-label="Score" value="{score}">'
        self.line.value = markup.line(said)

    @property
    def score(self) -> str:
        """The mystery's title and a square for each guess, as one line of text to share."""
        return f"{self._title} {self._squares}"

    def _follow(self) -> None:
        """Offer to guess the selection. A score stays until the next run."""
        show(self.view, self._lab_state.is_mystery or bool(self._title))
        for each in (self.name, self.reveal):
            show(each, self._secret is not None)
        if self._secret is None:
            return
        candidate = self.candidate
        self.name.disabled = candidate is None
        self.name.tooltip = ASKS if candidate is None else f"Guess that {arrow(candidate[1])} is slow"
        tries = f" · {_tries(self.tries)}" if self.tries else ""
        asked = ASKS if candidate is None else f"Is it {arrow(candidate[1])}?"
        self.line.value = markup.line(escape(f"{asked}{tries}"))


def is_it(candidate: tuple[str, str], secret: Secret) -> bool:
    """True if the guess is right. A link counts in both directions, because the network draws them as one line."""
    of, name = candidate
    return of == secret.of and name in (secret.name, LINK_SEPARATOR.join(reversed(secret.name.split(LINK_SEPARATOR))))


def square_of(candidate: tuple[str, str], secret: Secret) -> str:
    """Return the square of a guess."""
    if is_it(candidate, secret):
        return FOUND
    touched = set(candidate[1].split(LINK_SEPARATOR)) & set(secret.name.split(LINK_SEPARATOR))
    return NEAR if touched else WRONG


def described(secret: Secret) -> str:
    own = "messages" if secret.of == "link" else "computations"
    return f"{arrow(secret.name)}, whose {own} take {secret.factor:g} times as long"


def evidence_of(comparison: Comparison | None, of: str, name: str) -> str:
    """Return ``: its messages take 1.0 times the predicted``, or that nothing was measured. Empty without a
    comparison."""
    if comparison is None:
        return ""
    frame = comparison.links if of == "link" else comparison.devices.groupby("device").sum()
    predicted, measured = (frame[column].to_dict() for column in ("predicted_s", "measured_s"))
    # Nothing predicted is nothing to compare with, and would divide by zero.
    if not predicted.get(name, 0.0) > 0:
        return f": there is no measurement of {'it' if of == 'device' else 'its messages'}"
    times = measured[name] / predicted[name]
    return f": its {'messages' if of == 'link' else 'computations'} take {times:.1f} times the predicted"


def _tries(n: int) -> str:
    return "1 try" if n == 1 else f"{n} tries"


def arrow(name: str) -> str:
    return name.replace("->", "→")
