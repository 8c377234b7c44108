"""Commands that are options of others, such as ``dtfm-lab explain --worth PLAN``; and several words after ``--set``.

Such a subject is registered under both words, and keeps a function and options of its own.
"""

from collections.abc import Iterable, Iterator

import click


class Commands(click.Group):
    """The group of commands, which chooses a subject by its option."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if " " not in name]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if subject := next((each for each in self.commands if each.endswith(f" --{args[0]}")), None):
            raise click.UsageError(f"no command {args[0]}; wanted dtfm-lab {subject}")
        name, command, rest = super().resolve_command(ctx, args)
        own = rest[: rest.index("--")] if "--" in rest else rest
        for option in own:
            if (subject := f"{name} {option}") in self.commands:
                rest.remove(option)
                return subject, self.commands[subject], list(_spread(rest))
        return name, command, list(_spread(rest))

    def offer_subjects(self) -> None:
        """Give each command the options that choose its subjects, once all commands are there."""
        for subject in [name for name in self.commands if " " in name]:
            name, option = subject.split()
            about = f"{self.commands[subject].get_short_help_str(1000)} See dtfm-lab {subject} --help."
            self.commands[name].params.append(click.Option([option], is_flag=True, expose_value=False, help=about))


def _spread(words: Iterable[str]) -> Iterator[str]:
    """``--set`` before each NAME=VALUE that follows one, because click takes one value an option."""
    setting, previous = False, ""
    for word in words:
        follows = setting and "=" in word and not word.startswith("-")
        if follows and previous != "--set":
            yield "--set"
        setting = follows or word == "--set"
        previous = word
        yield word
