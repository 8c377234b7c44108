"""Topology + Job -> Plan: search for plans with a low communication cost, iteration time or price, and explain them.

The package itself has the communication cost, the problem that a planner gets and the search that runs a planner.
``planners`` has the planners, ``bounds`` the lower bound during a search, ``explain`` the causes of a plan's cost,
``kernels`` the compiled loops. ``iteration`` searches by the simulated iteration time or price. ``adapting``,
``replanning`` and ``moving`` bring a plan to another network, ``draws`` compares plans on random variations of a
network, and ``sweeps`` plans or simulates many combinations of settings.
"""

from dtfm_lab.planning import planners as _registered
from dtfm_lab.planning.adapting import adapt_plan
from dtfm_lab.planning.background_tasks import Cancellation
from dtfm_lab.planning.bounds import lower_bound_s
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.draws import Draws, drawn, plan_for_draws
from dtfm_lab.planning.evaluate import evaluate, simulated, why_not_simulated
from dtfm_lab.planning.explain.difference import Difference
from dtfm_lab.planning.explain.explanation import Explanation, explain
from dtfm_lab.planning.explain.worth import Worth, stream_worth, worth_table
from dtfm_lab.planning.iteration import objective as _objectives
from dtfm_lab.planning.iteration.frontier import Frontier
from dtfm_lab.planning.iteration.frontier_search import stream_frontier
from dtfm_lab.planning.moving import Moves, moves
from dtfm_lab.planning.problem import Generation, Planner, Problem, planners
from dtfm_lab.planning.replanning import Replan, network_after, replan
from dtfm_lab.planning.search import Objective, PlanStep, default_objective, objectives, plan, search
