"""What is known of the generated mutants that live: the reason, or the test with real processes that sees them."""

from __future__ import annotations

import re

from tests.minidl.simulated.reasons import REASONS

MEMORY = "tests/minidl/test_checkpoint.py::test_memory_is_found_where_it_was"

# The test, and a pattern for each group of mutants that it kills: "module.function: what is changed". The first that
# matches counts. `python -m tests.minidl.simulated.killing --tests` runs these.
KILLED_BY = {
    "tests/minidl/test_pinning.py::test_the_pin_thread_has_a_name_and_takes_one_core": (
        r"^pinning\.pin_loop: (`(torch\.set_num_threads|world\.name_thread)\(.*\)` is left|2 in place of 1)",
    ),
    "tests/minidl/test_pinning.py::test_a_pin_thread_that_cannot_start_is_not_waited_for": (
        r"^shutdown\.end_pin_thread: .* without `thread\.is_alive",
    ),
    "tests/minidl/test_queues.py::test_an_interrupt_as_a_message_is_taken_does_not_count_as_one_while_waiting": (
        r"^queues\.ThreadQueue\.get: `self\.waiting = False` after",
    ),
    "tests/minidl/test_worker.py::test_a_worker_has_a_name_for_the_systems_tools": (
        r"^worker\.run: `job\.world\.name_thread\(.*\)` is left",
    ),
    "tests/minidl/test_shutdown.py::test_a_loader_that_a_daemon_thread_builds_is_shut_down_at_exit": (
        r"^parallel\.ParallelIterator\.__init__: `shut_down_at_exit.* after `self\._reset",
    ),
    "tests/minidl/test_shutdown.py::test_a_batch_whose_memory_has_a_name_can_be_passed_on_after_the_epoch": (
        r"^shutdown\.use_force: .* without `worker\.exitcode or",
    ),
    "tests/minidl/test_shutdown.py::test_after_a_stream_no_batch_is_left_to_be_yielded": (
        r"_try_put_index: `if worker_id is None` after `self\._task_info",
    ),
    "tests/minidl/test_signals.py::test_the_exit_code_may_come_after_the_end": (
        r"^deaths\.explain_death: `process\.join.* after `code = ",
    ),
    "tests/minidl/test_signals.py::test_wherever_ctrl_c_comes_as_an_epoch_begins_the_loader_can_be_iterated": (
        r"_new_epoch: `self\._epoch = -1` after `self\._numbered",
    ),
    "tests/minidl/test_signals.py::test_ctrl_c_as_the_ends_of_a_started_workers_pipes_are_closed_leaves_no_worker": (
        r"^startup\.start_workers: `if worker\.pid is not None` after",
    ),
    "tests/minidl/test_signals.py::test_ctrl_c_as_a_later_epoch_begins_leaves_the_iterator_at_its_end": (
        r"_reset: `self\._begin_epoch.* after `self\._send_idx",
    ),
    "tests/minidl/test_signals.py::test_a_death_that_a_handlers_next_has_raised_is_raised_by_the_one_it_interrupted": (
        r"^deaths\.check_health: `raise RuntimeError.* is left",
    ),
    "tests/minidl/test_transport.py::test_every_kind_of_data_arrives_as_by_torchs_transport": (
        r"^pickling\.Pickled\.__init__: `self\.dispatch_table = reducers` is left",
    ),
    "tests/minidl/test_worker.py::test_a_worker_ends_at_an_interrupt_that_python_swallowed": (
        r"^worker\.run: `job\.world\.on_interrupt.* (after|is left out)|^worker\.Worker\.note_interrupt: False",
    ),
    "tests/minidl/test_signals.py::test_a_fork_of_main_gets_workers_of_its_own_from_a_persistent_loader": (
        r"^loader\.DataLoader\.__iter__: .* without `iterator\._owner_pid",
    ),
    "tests/minidl/test_events.py::test_the_loaders_of_a_worker_have_numbers_that_fit": (
        r"^events\.number_loaders_from: (9|11) in place of 10",
    ),
    "tests/minidl/test_checkpoint.py::test_generators_are_read_and_put_back_whatever_numpy_draws_from": (
        r"^checkpoint\.randomness\.(signs: .* without `RAND\._bit_generator|_numpy: `return json.* is left)",
    ),
    "tests/minidl/test_checkpoint.py::test_memory_that_is_not_found_is_not_needed": (
        r"^checkpoint\.randomness\._python: `_, words, gauss = .* after `memory",
    ),
    "tests/minidl/test_checkpoint.py::test_memory_that_holds_something_else_is_not_taken": (
        r"^checkpoint\.randomness\.(pythons|numpys)_memory: .* is always True",
    ),
    f"{MEMORY}[PYTHON]": (r"^checkpoint\.randomness\.pythons_memory: (?!`found = .* after)",),
    f"{MEMORY}[NUMPY]": (r"^checkpoint\.randomness\.numpys_memory: ",),
    f"{MEMORY}[NUMPYS_GAUSS]": (
        (
            r"^checkpoint\.randomness\.gauss_memory: "
            r"(?!`at >= 0` (is always True|with Gt)|-1 in place of 0|1 in place of 0|[02] in place of 1)"
        ),
    ),
    f"{MEMORY}[TORCHS]": (
        (
            r"^checkpoint\.randomness\.torchs_memory: (?!`torch\.rand.* is left|`if at < 0` after|`return None`"
            r"|`at < 0` (is always False|with LtE)|`len\(seen\) == 2` is always True|.* without `0`|-?1 in place of 0"
            r"|`engine\(other\) \+ at - 4` with Add|[35] in place of 4|0 in place of 1|12[79] in"
            r"|62[46] in place of 625)"
        ),
    ),
    "tests/minidl/test_loader.py::test_the_length_of_a_map_style_loader_is_its_samplers": (
        r"^loader\.DataLoader\.__len__: `if not isinstance.* after `length = ",
    ),
    "tests/minidl/test_events.py::test_whoever_installs_a_recorder_is_given_the_one_it_replaces": (
        r"^events\.install: `return previous` is left",
    ),
    "tests/minidl/test_events.py::test_without_a_recorder_nothing_is_reported": (
        r"^events\.emit: (`_recorder is None` is always False|`if _recorder is None` after `try`)",
    ),
    "tests/minidl/test_events.py::test_a_recorder_that_raises_is_removed_and_reported_once": (
        r"^events\.emit: (.*print.* (after `traceback|is left out)|no `except Exception`)",
    ),
}


def reason(mutant: str) -> str | None:
    """`mutant` is "module.function: what is changed"."""
    test = killed_by(mutant)
    return f"killed by {test}" if test else first(REASONS, mutant)


def killed_by(mutant: str) -> str | None:
    """The test with real processes that fails with it."""
    return first(KILLED_BY, mutant)


def first(table: dict[str, tuple[str, ...]], mutant: str) -> str | None:
    return next((each for each, patterns in table.items() for p in patterns if re.search(p, mutant)), None)
