"""The legend at the foot of the lab, the same in every state: stages, kinds of action, waits, links, keys."""

import traitlets

from dtfm_lab.widgets.views.view import View


class Legend(View):
    """One line that says what colours, hatches and lines mean in every view of the lab."""

    n_stages = traitlets.Int(0).tag(sync=True)
    """Stages of the plan; 0 while there is none."""
    shortcuts = traitlets.Unicode("1–8 results · Space plays · F whole window · ? words").tag(sync=True)

    def alt_text(self) -> str:
        return "forward, backward, averaging; hatched: waits; link width is bandwidth, dashes are latency"
