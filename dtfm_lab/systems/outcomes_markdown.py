"""The systems' outcomes as Markdown: a line for each, what was assumed, and what has no model."""

from collections.abc import Mapping, Sequence

from dtfm_lab.domain.units import format_s
from dtfm_lab.systems.bars import bars
from dtfm_lab.systems.outcome import Outcome

HEAD = (
    "| system | an iteration | times | with a link a pair | plan | most of it | remarks |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


def table(sentence: str, win: str, outcomes: Sequence[Outcome], not_modelled: Mapping[str, str]) -> str:
    """A table of the outcomes, the best rival (``win``) where there is one, their assumptions with sources, and the
    reasons of what is not modelled."""
    lines = [HEAD]
    least_s = min((one.iteration_s for one in outcomes if one.iteration_s is not None), default=1.0)
    for bar in bars(outcomes):
        one = bar.outcome
        seconds = ["no plan", ""] if one.iteration_s is None else [format_s(one.iteration_s), times(one, least_s)]
        cells = [bar.name, *seconds, pairs(one), one.shape, next(iter(one.causes), ""), remarks(one)]
        lines.append(f"| {' | '.join(_one_line(cell) for cell in cells)} |")
    lines += ["", " ".join(filter(None, (f"{sentence}.", win)))]
    lines += ["", "Assumed:", ""] if any(one.strategy.assumed for one in outcomes) else []
    for one in outcomes:
        lines += [
            f"- {one.title}, {assumed['name'].replace('_', ' ')} {assumed['value']}: {_one_line(assumed['help'])} "
            f"({_one_line(assumed['source'])})"
            for assumed in one.strategy.assumed
        ]
    lines += ["", "Not modelled:", ""] if not_modelled else []
    lines += [f"- {name}: {_one_line(reason)}" for name, reason in not_modelled.items()]
    return "\n".join(lines) + "\n"


def times(outcome: Outcome, least_s: float) -> str:
    """The seconds over the fastest's, with three figures at least."""
    if outcome.iteration_s is None or least_s <= 0:
        return ""
    ratio = outcome.iteration_s / least_s
    return f"{ratio:,.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}"


def pairs(outcome: Outcome) -> str:
    """The seconds of the same plan with a link for each pair; empty without a plan."""
    return "" if outcome.pairs_s is None else format_s(outcome.pairs_s)


def remarks(outcome: Outcome) -> str:
    """Why there is no plan; or its choices, and what it changes of the training."""
    return outcome.reason or "; ".join(filter(None, (outcome.choices, outcome.strategy.mathematics)))


def _one_line(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
