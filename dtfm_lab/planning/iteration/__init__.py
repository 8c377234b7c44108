"""Search for the plan with the shortest simulated iteration, or the cheapest one.

Ten concepts carry the search:

1. A *problem* (``problem``) is a network and a job as arrays: seconds and bytes of each layer on each device.
2. A *target* (``problem.SearchTarget``) is what is minimised, seconds or dollars, and the limits on both.
3. A *structured plan* (``structured``) is one that a practitioner would launch. Thousands are estimated in closed form.
4. A *choice* (``structured.layouts``) is what annealing keeps fixed: tensor parallelism, sharding, averaging.
5. A *shape* is a number of stages and of replicas. A *shape search* (``shape_searches``) improves plans of one.
6. *Annealing* (``kernels.annealing``) changes devices, cut, micro-batches and warm-ups, one at a time.
7. The *estimate* (``kernels.pricing``) prices a change in microseconds.
8. The *replay* (``kernels.passes``) plays the schedule itself and gives the simulator's seconds, up to rounding.
9. The *pricer* (``structured.candidates``) uses the replay if it covers the job, else the simulator.
10. The *bound* (``bounds``) is a time that no plan can beat. It rises while the search runs.

To read the code, begin at the top: ``objective.Search`` is the whole search in four methods. ``begin`` yields
structured plans, ``improve`` anneals the best choices, ``judge`` keeps a plan that is the best so far, and ``bound``
raises the lower bound. ``search.ChoiceAnnealing`` anneals one choice. It begins each shape with ``starts``, improves it
in ``shape_searches`` and prices it with the pricer. ``fitting`` says whether a job fits at all.
"""

from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.search import search_iteration
from dtfm_lab.planning.iteration.structured.candidates import Candidate
