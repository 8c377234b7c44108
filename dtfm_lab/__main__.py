"""``python -m dtfm_lab`` is the command ``dtfm-lab``."""

from dtfm_lab.cli import main

main()
