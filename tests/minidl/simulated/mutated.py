"""A pytest plugin: the tests run with a mutant at work, `-p tests.minidl.simulated.mutated` with its name in MINIDL_MUTANT.

Forked workers have the mutant, too. (Under spawn and forkserver they import the loader as it is.)
"""

from __future__ import annotations

import os

from tests.minidl.simulated import generated_mutants

VARIABLE = "MINIDL_MUTANT"

generated_mutants.at_work(generated_mutants.named(os.environ[VARIABLE]))
