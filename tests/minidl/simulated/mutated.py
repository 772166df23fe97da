"""A pytest plugin, `-p tests.minidl.simulated.mutated`: the tests run with the mutant that MINIDL_MUTANT names at work.

Forked workers have the mutant, too. (Under spawn and forkserver they import the loader as it is.)
"""

from __future__ import annotations

import os

from tests.minidl.simulated import generated_mutants

generated_mutants.at_work(generated_mutants.named(os.environ["MINIDL_MUTANT"]))
