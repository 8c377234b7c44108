"""Plans for what people pay for: the seconds of a simulated iteration, and its dollars."""

from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.search import search_iteration
from dtfm_lab.planning.iteration.tables_of import SearchTarget
