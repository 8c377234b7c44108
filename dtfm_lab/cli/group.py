"""The group that the commands join, by ``@cli.command()`` in the modules beside this one."""

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dtfm_lab", prog_name="dtfm-lab")
def cli() -> None:
    """Plan, predict, run and compare decentralised training of foundation models."""
