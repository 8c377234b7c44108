"""The step What if: sliders and menus over a plan, the answer to each setting, and a row of pinned ones."""
