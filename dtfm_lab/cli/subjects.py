"""Commands that became options of others: ``dtfm-lab worth PLAN`` is ``dtfm-lab explain --worth PLAN``.

Such a subject keeps a function and options of its own; the option of the other command only chooses it.
"""

import click

MOVED = {
    "additions": "explain --additions",
    "app": "lab --app",
    "baselines": "run --baselines",
    "crossings": "strategies --crossings",
    "diff": "compare",
    "notebooks": "lab --copy",
    "probe": "doctor --probe",
    "schedule": "show --schedule",
    "schema": "show --schema",
    "sensitivity": "explain --sensitivity",
    "slides": "export --slides",
    "sweep": "simulate --sweep",
    "systems": "strategies --list",
    "worth": "explain --worth",
    "write": "run --write",
}
"""Old name of a command -> what to use instead. The old names go with the next release."""
SUBJECTS = {new: old for old, new in MOVED.items() if " " in new}
"""A command with its option -> the old name of the command that the option chooses."""


class Commands(click.Group):
    """The group of commands, in which the old names still work, unlisted and with a line on standard error."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name not in MOVED]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name in MOVED and not ctx.resilient_parsing:  # as it is while a shell completes a line
            click.echo(f"dtfm-lab {name} goes with the next release; use dtfm-lab {MOVED[name]}", err=True)
        own = rest[: rest.index("--")] if "--" in rest else rest
        for option in own:
            if (new := f"{name} {option}") in SUBJECTS:
                rest.remove(option)
                return new, self.commands[SUBJECTS[new]], rest
        return name, command, rest

    def offer_subjects(self) -> None:
        """Give each command the options that choose its subjects, once all commands are there."""
        for new, old in SUBJECTS.items():
            name, option = new.split()
            about = f"{self.commands[old].get_short_help_str(1000)} See dtfm-lab {new} --help."
            self.commands[name].params.append(click.Option([option], is_flag=True, expose_value=False, help=about))
