"""All programs worth exploring, by name."""

from tests.minidl.simulated.worth_asking import QUESTIONS
from tests.minidl.simulated.worth_ending import ENDS
from tests.minidl.simulated.worth_exploring import LOADS
from tests.minidl.simulated.worth_killing import DEATHS
from tests.minidl.simulated.worth_moving import MOVES
from tests.minidl.simulated.worth_returning import RETURNS

PROGRAMS = {**LOADS, **MOVES, **DEATHS, **ENDS, **QUESTIONS, **RETURNS}
