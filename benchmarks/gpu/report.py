"""The report: machine, versions, commit, and figures with goals and verdicts; as JSON, and as a page to send in."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from figures import Figure
from machine_facts import machine_facts

VERSION = 1
SEND = (
    "To send it in, open an issue of the repository that is called *GPU report* and attach this page and report.json. "
    "They name the GPU, its driver, versions and the commit; no host, user, folder or file of yours."
)


@dataclass(kw_only=True)
class StepRecord:
    """What came of a step."""

    state: str = "not run"
    """``done``, ``failed`` or ``not run``."""
    reason: str = ""
    """Why it failed or did not run, in one line."""
    seconds: float = 0.0
    figures: list[Figure] = field(default_factory=list)
    lines_read: int = 0


def shown(figure: Figure, rehearsed: bool) -> str:
    """A figure in one line."""
    goal = f" (goal {figure.goal})" if figure.goal else ""
    note = f"; {figure.note}" if figure.note else ""
    return f"{figure.name}: {_number(figure)}{goal}: {figure.verdict(rehearsed)}{note}"


def _number(figure: Figure) -> str:
    value = figure.value if isinstance(figure.value, str) else f"{figure.value:.4g}"
    return f"{value} {figure.unit}".strip()


class Report:
    """The report of one folder; every change is written at once."""

    def __init__(self, folder: Path, rehearsed: bool, names: list[str]) -> None:
        self.folder, self.rehearsed, self._names = folder, rehearsed, names
        self.machine = machine_facts(gpu=not rehearsed)
        self.steps: dict[str, StepRecord] = {}

    @classmethod
    def opened(cls, folder: Path, rehearsed: bool, names: list[str]) -> Report:
        """The report in the folder where it is of this machine and commit; else a new one."""
        report = cls(folder, rehearsed, names)
        try:
            kept = json.loads((folder / "report.json").read_text(encoding="utf-8"))
            if (kept["version"], kept["rehearsed"], kept["machine"]) == (VERSION, rehearsed, report.machine):
                for name, step in kept["steps"].items():
                    figures = [
                        Figure(**{key: value for key, value in figure.items() if key != "verdict"})
                        for figure in step.pop("figures")
                    ]
                    report.steps[name] = StepRecord(**step, figures=figures)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        report.write()
        return report

    def keep(self, name: str, record: StepRecord) -> None:
        self.steps[name] = record
        self.write()

    @property
    def machine_line(self) -> str:
        return ", ".join(f"{what} {value}" for what, value in self.machine.items())

    @property
    def _verdicts(self) -> list[str]:
        return [figure.verdict(self.rehearsed) for step in self.steps.values() for figure in step.figures]

    @property
    def is_good(self) -> bool:
        """Whether no goal was missed and no step failed."""
        return "missed" not in self._verdicts and all(step.state != "failed" for step in self.steps.values())

    @property
    def summary(self) -> str:
        done = sum(step.state == "done" for step in self.steps.values())
        failed = [name for name, step in self.steps.items() if step.state == "failed"]
        said = f"{done} of {len(self._names)} steps done" + (f", failed: {', '.join(failed)}" if failed else "")
        if self.rehearsed:
            return f"rehearsed on the CPU: no figure of a GPU; {said}"
        return f"{self._verdicts.count('met')} goals met, {self._verdicts.count('missed')} missed; {said}"

    def write(self) -> None:
        steps = {
            name: {key: value for key, value in asdict(step).items() if key != "lines_read"}
            | {"figures": [asdict(each) | {"verdict": each.verdict(self.rehearsed)} for each in step.figures]}
            for name, step in self.steps.items()
        }
        document = {"version": VERSION, "rehearsed": self.rehearsed, "machine": self.machine, "steps": steps}
        for name, text in (("report.json", json.dumps(document, indent=1) + "\n"), ("report.md", self._page())):
            partial = self.folder / f"{name}.partial"
            partial.write_text(text, encoding="utf-8")
            partial.replace(self.folder / name)

    def _page(self) -> str:
        title = "GPU report" if not self.rehearsed else "GPU report: rehearsed on the CPU: no figure of a GPU"
        parts = [f"# {title}", self.summary + ".", SEND, "| | |\n| --- | --- |"]
        parts[-1] += "".join(f"\n| {what} | {value} |" for what, value in self.machine.items())
        for name in self._names:
            step = self.steps.get(name, StepRecord(reason="not asked for"))
            parts.append(f"## {name}: {step.state}" + (f", {step.seconds:g} s" if step.seconds else ""))
            if step.reason:
                parts.append(step.reason)
            if step.figures:
                rows = [
                    f"| {each.name} | {_number(each)} | {each.goal} | {each.verdict(self.rehearsed)} | {each.note} |"
                    for each in step.figures
                ]
                parts.append(
                    "\n".join(["| figure | value | goal | verdict | |", "| --- | --- | --- | --- | --- |", *rows])
                )
        return "\n\n".join(parts) + "\n"
