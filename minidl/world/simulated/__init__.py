"""A simulated machine for the loader to run on: see docs/simulation.md.

outcome = simulate(program, seed=7)                     # one schedule; program() builds a loader and iterates
outcome = simulate(program, schedule="12.3-40.k2")      # the same one again, exactly
result  = explore(program, delays=2, faults=1)          # all schedules within the bounds
tracing.load(result.counterexample)                     # a trace like any other
"""

from minidl.world.simulated.explore import Exploration, explore, explore_by_chance
from minidl.world.simulated.simulation import Outcome, compute, drop, simulate, sleep, step

__all__ = ["Exploration", "Outcome", "compute", "drop", "explore", "explore_by_chance", "simulate", "sleep", "step"]
