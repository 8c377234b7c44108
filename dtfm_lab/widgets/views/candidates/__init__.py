"""A table to choose from: each schedule on one plan, filled in as rows are computed."""

import traitlets

from dtfm_lab.domain.units import format_s
from dtfm_lab.widgets.views.view import View


class CandidatesView(View):
    """Draws rows {"name", "iteration_s", "bubble", "memory", "fits", "problem"}. A click sets ``chosen``.

    A row that is not computed yet only has a name. One that cannot be computed has ``problem``, the reason as one line.
    """

    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    chosen = traitlets.Unicode("").tag(sync=True)
    title = traitlets.Unicode("Schedules").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)
    """True if the plan or the choices have changed since the rows were computed."""

    def alt_text(self) -> str:
        computed = [
            f"{row['name']} {format_s(row['iteration_s'])}" + ("" if row["fits"] else ", which does not fit")
            for row in self.rows
            if "iteration_s" in row
        ]
        return f"{self.title}: {'; '.join(computed) or 'none computed yet'}"
