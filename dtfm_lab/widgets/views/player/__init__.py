"""The row that plays an iteration: Play, a slider over its seconds, and how much slower than real time it plays."""

import traitlets

from dtfm_lab.widgets.views.view import View


class PlayerView(View):
    """Tells every view of its lab, in the page, which moment of the iteration to show. See ``tellTime`` in bus.js."""

    length_s = traitlets.Float(0.0).tag(sync=True)
    """Seconds of the iteration. 0 without one."""
    known_s = traitlets.Float(0.0).tag(sync=True)
    """Seconds of the iteration that are known so far. An iteration that is being measured is played up to there."""
    source = traitlets.Unicode("").tag(sync=True)
    """One of predicted, what if and measured. Empty for nothing."""
    iteration = traitlets.Int(-1).tag(sync=True)
    """Number of the iteration, shown only if it was measured. -1 without one."""
    loops = traitlets.Bool(False).tag(sync=True)
    """True if the iteration starts again at its end, as during a run."""
    playing = traitlets.Bool(False).tag(sync=True)
    captions = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{from, text, kinds} of each caption of the first iteration that plays by itself. Empty at any other time.

    ``from`` is the share of the iteration from which it is shown. ``kinds`` are the kinds of actions whose colours it
    explains. A person sees them once, and never with reduced motion: then nothing plays by itself.
    """
