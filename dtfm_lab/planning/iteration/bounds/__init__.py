"""Lower bounds on the seconds and the dollars of an iteration that hold for every plan of a job on a network.

``iteration_bound_steps`` yields bounds on the seconds that never fall. The first is the time of all passes if no device
ever waits. Proofs that no plan is faster then raise it. For few devices they enumerate grids (``enumeration``). For any
number, linear programs assign devices to stages (``refutation``). ``price_bound`` is for dollars.
"""

from dtfm_lab.planning.iteration.bounds.iteration_bound import (
    IncrementalBound,
    iteration_bound_steps,
    least_of,
    price_bound,
    work_bound_s,
)
