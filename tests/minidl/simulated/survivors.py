"""Why nobody could see some of the generated mutants that live, or which test with real processes sees them."""

from __future__ import annotations

import re

# A pattern of "module.function: what is changed", and the reason. The first that matches counts.
REASONS = (
    # Nobody looks between the two, or neither depends on the other.
    (r"Room\.__init__: .* after `self\._use", "nobody has the object between the two"),
    (r"ParallelIterator\.__init__: `self\._workers_done_event = .* after", "one flag is as good as another"),
    (r"start_workers: `index_reader, index_writer = .* after", "nobody knows of either pipe yet"),
    (
        r"start_workers: `iterator\._index_queues\.append.* after `worker = world\.process",
        "neither waits, nor can fail",
    ),
    (
        r"start_workers: `iterator\._ending_of\.append.* after",
        "it is looked up only for an end that has been waited for",
    ),
    (r"shutdown\.joined: .*` after `", "only Ctrl-C between the two, in a call that takes no step, could tell"),
    (r"close_queues: `deadline = .*` after `for", "a Ctrl-C in now() finds the queues closed already: no worse"),
    (r"close_queues: `if thread is None.*` after `iterator\._endings", "each closes something else, and neither waits"),
    (r"pin_device: .* after `found = ", "one warns, the other asks torch: neither depends on the other"),
    (r"explain_death: `if code is not None and code < 0` after", "if the second is true, the first sets `text` alone"),
    (r"check_worker_options: `if prefetch_factor is not None.* after `if prefetch_factor == 0", "never are both true"),
    (r"reducer_override: `if isinstance\(thing, np\.ndarray\).* after `if type\(thing\)", "never are both true"),
    (r"worker\.run: `job\.world\.(report_crashes|name_thread)\(.*\)` after", "for the system's tools, in either order"),
    (r"seed_everything: `torch\.set_num_threads\(1\)` after `seed = ", "one number does not depend on the other"),
    (
        r"room: `if slot in self\._slots` after `_room = _room or Room",
        "a Room without memory costs nothing; it is replaced",
    ),
    (r"room: `memory\.forget\(\)` after `_room = Room", "in the real world `forget` does nothing"),
    (
        r"reclaim: `self\._take_back\(\)` after `self\._out = ",
        "`_take_back` itself takes what has come back out of `_out`",
    ),
    (
        r"before_fork: `(if )?self\._world\.pid\(\) != self\._pid` (after|is always False)",
        "what a child inherits, its own fork has already retired",
    ),
    (
        r"check_health: `if iterator\._failure.* after `for",
        "next() raises either way; of two deaths it names the other",
    ),
    (
        r"Consumer\.add: .* after `self\._waiter\.add\(peer",
        'they may be ready in any order: see the line "order" in worth.py',
    ),
    (r"_wait: `if not ready` after `self\._take_in", "there is nothing to be taken in of nothing"),
    (r"_reset: `self\._workers_num_tasks = .* after `if not first_iter`", "the handshake counts no tasks"),
    (r"_resume_workers: `self\._workers_status = .* after `for index_queue", "`put` notices no death"),
    (r"_forward: `queue, worker_id = self\._name` after", "only the feeder's name depends on it"),
    (r"_forward: `self\._feeder = None` after", "what is sent meanwhile does not look at the feeder"),
    (r"_read_to_the_end: `if channel\.open` after", "each takes off something else"),
    (r"start_pin_thread: `data_queue = .* after `device = ", "the queue does not depend on the device"),
    (r"worker\.run: `if slots` after `worker = Worker", "what stacks batches is asked for later, by the first of them"),
    (r"__init__: `transport_of\(.* after `if num_workers", "one may raise, the other fills in a default for itself"),
    (
        r"_try_put_index: `self\._task_info\[.* after",
        "only Ctrl-C between: then next() raises, and _reset begins both anew",
    ),
    (
        r"_next_data: `if self\._failure.* after `if self\._world",
        "next() raises either way; a fork's copy with other words",
    ),
    (r"reducer_override: `number = .* after `shape = ", "neither depends on the other"),
    (r"_take: `if info\.early` after `if task_id ==", "neither depends on the other"),
    (r"Pickled\.__init__: `super\(\)\.__init__.* after `self\.dispatch_table", "neither depends on the other"),
    (r"_resume_workers: `waiting_for\.discard.* after `self\._transports", "neither depends on the other"),
    (
        r"Consumer\.add: `self\._channels\.append.* after `self\._waiter\.add\(reader",
        "nobody waits before both are done: only Ctrl-C between the two could tell, and then the start fails",
    ),
    (r"pin_loop: `world\.name_thread.* after", "neither depends on the other"),
    (
        r"_read_to_the_end: `self\._waiter\.remove.* after `channel\.open",
        "only Ctrl-C between could tell, if another process keeps a dead worker's pipe open",
    ),
    (r"Consumer\.close: `self\._waiter\.close\(\)` after", "each closes something else, and neither waits"),
    (r"Consumer\.__init__: `self\.waiting = False` after", "nobody has the object between the two"),
    (r"Producer\.close: `queue, worker_id = self\._name` after", "only events need the names"),
    (r"shut_down: `signals\.unwatch\(iterator\)` after `if all_ended", "unwatch() is seen by no event"),
    (
        r"shut_down: `close_queues\(iterator\)` after `signals\.unwatch",
        "_look does nothing below the loader; while another thread shuts down, it may look in either order",
    ),
    (
        r"tell_to_stop: `index_queue\.put.* after `index_queue\.cancel",
        "only join_thread looks at that, and main joins later",
    ),
    (
        r"wait_for_workers: `worker\.join\(patience\)` after",
        "use_force joins and reports those that have ended: a step later",
    ),
    (r"ParallelIterator\.__init__: `super.* after `self\._world = ", "the one does not look at the other"),
    (r"ParallelIterator\.__init__: `signals\.watch.* after `shut_down_at_exit", "each puts it into a set of its own"),
    (r"_resume_workers: `for index_queue.* after `waiting_for = ", "`put` does not look at it"),
    (
        r"tell_to_stop: `index_queue\.cancel.* after `index_queue\.close",
        "only join_thread looks at that, and main joins later",
    ),
    (r"_take_back: `del self\._lent\[slot\]` after", "neither depends on the other"),
    (
        r"worker\.run: `worker\.result_queue = .* after `job\.world\.on_interrupt",
        "the handler does not look at the queue",
    ),
    (
        r"worker_ended: .* after `iterator\._endings\.remove",
        "only Ctrl-C between the two could tell: then next() raises",
    ),
    (r"fail_for_lost_message: `while .* after `if not", "of two causes it names the other"),
    (
        r"BaseIterator\.__init__: `if saved is not None and saved\.base_seed.* after `self\._persistent",
        "neither depends on the other",
    ),
    (r"_go_on: `self\._position\.begin\(saved\.begin\)` after", "begin() does not look at the length"),
    (r"DataLoader\.__init__: `self\._initialized = True` after", "the check sets no attribute"),
    (
        r"DataLoader\.__iter__: `if self\.persistent_workers.* after `self\._position",
        "each puts the iterator, or its position, into an attribute that the other does not look at",
    ),
    (r"check_worker_number_rationality: `if not .* after `if cores is None", "the words are made, and not needed"),
    (r"SerialIterator\.__init__: `if self\._timeout.* after `make = ", "`partial` calls nothing"),
    (
        r"close_queues: `index_queue\.cancel_join_thread\(\)` after",
        "only join_thread looks at that, and nobody calls it for an index queue",
    ),
    (
        r"DataLoader\.state_dict: `if self\._loaded.* after `position = ",
        "what the position is made of only looks: it draws nothing, and iterates over nothing",
    ),
    # It is the same.
    (
        r"Position\.passed: -?1 in place of 0",
        "with workers the task has arrived; without, nobody asks for the number of a worker",
    ),
    (
        r"Source\.place: .* without `stream is not None`",
        "a map-style dataset whose state_dict() returns None: entries that nobody reads",
    ),
    (
        r"Telling\.is_wanted: .* with LtE",
        "a place is sent that main does not need",
    ),
    (
        r"worker\.run: `slots` is always True",
        "torch's way (what is left of these): our stacking makes new shared memory, as torch's own does",
    ),
    (
        r"check_sampling_options: .* without `batch_sampler is None`",
        "the lines before refuse a batch_sampler together with drop_last",
    ),
    (
        r"SerialIterator\.__init__: -1 in place of 0",
        "without workers a state has one place; and to repeat -1 batches is to repeat none",
    ),
    (r"Consumer\.__init__: True in place of False", "`get` and next() set it before anybody asks"),
    (
        r"wait_for_workers: `joined\(iterator, worker_id\)` is left",
        "use_force reports those that have ended: a step later",
    ),
    (r"_get_iterator: `self\.num_workers > 0` is always True", "the check itself passes over no workers"),
    (r"SerialIterator\.__init__: `self\._position\.source = .* after", "going on does not look at it"),
    (r"(Handles\.room|Consumer\._next_channel): `return None` is left", "it returns None anyway"),
    (
        r"_feed: `del message` is left",
        "only slower: the last batch lives until the next one is sent, and its slot may get new memory",
    ),
    (r"Consumer\.__init__: `self\.waiting = False` is left", "`get` sets it before anybody asks"),
    (r"_strides: \d+ in place of 1024", "how many shapes are remembered: only slower"),
    (r"Handles\.grant: True in place of", "torch's transport has no slots: nobody looks"),
    (r": `assert .*` is left out", "an assertion states what is so"),
    (r"Unpacker\.__init__: 14 in place of 15", "only slower, from 16,384 tasks per worker on"),
    (
        r"Unpacker\.grant: (`slot == NO_SLOT` is always False|True in place of False)",
        "NO_SLOT has no memory, nor comes back",
    ),
    (
        r"worker\.run: `job\.done\.is_set\(\) or .*` is always True",
        "main has everything of a worker that it stops alone: its StreamEnd came last",
    ),
    (r"fail_for_death: `for task_id, _ in tasks` is left", "it only tells"),
    (
        r"_next_keys: `not self\._iterable` is always True",
        "the keys of a stream's tasks are all the same: a longer state",
    ),
    (
        r"(_receive: `return result\.task_id` is left|_next_task: `task_id is not None .*` is always False)",
        "only slower: the loop finds what has arrived",
    ),
    (r"reducer_override: -1 in place of 0", "more than half of a storage is sent whole, from 0"),
    (
        r"SerialIterator\.__init__: .* and goes_on` without `saved is not None`",
        "`goes_on` implies it: only the type checker cares",
    ),
    (r"SerialIterator\._next_data: `self\._source\.failed\.append.*` twice", "only whether it is there is asked"),
    (r"joined: `iterator\._joined\.add\(worker_id\)` twice", "it is a set"),
    (r"use_force: .* without `worker\.pid`", "a process that was never started has no exit code either"),
    (r"_read_to_the_end: .* without `channel\.open`", "the waiter does not name a pipe that was removed at its end"),
    (
        r"_resume_workers: .* without `isinstance\(message, Resumed\)`",
        "nothing else of the new epoch was sent yet, and a Died has raised",
    ),
    (r"join_thread: None in place of timeout", "the loader gives none; tests do, to fail instead of hanging"),
    (r"_is_plain: .* without `tensor\._is_zerotensor", "its memory cannot be had either way: the same error"),
    (r"Packer\.__init__: (-1|1) in place of 0", "only the largest counts"),
    (r"pack: `not taken and needed .* without `not taken`", "what lies in the slot is copied once more, and sent"),
    (r"ThreadQueue\.__init__: `self\.waiting = False` is left out", "every next() sets it before anybody asks"),
    (r"_write: `sum\(.* < ONE_WRITE` is always", "only more system calls, or one copy more"),
    (r"DirectProducer\._send: `self\._unwritten\.get\(\)` is left", "only slower: the feeder writes all from then on"),
    (r"(_is_row_major: .* without `tensor\.stride|_strides: `return .* is left)", "only slower: `part` for `whole`"),
    (
        r"(Consumer\.(get|_wait|_read_to_the_end)|\w+_workers|close_queues|signals\._look|_unnoticed)"
        r": -1.* in place of 0",
        "a wait for less than no time looks once, as well",
    ),
    (r"lay_out: -?1 in place of 0", "nothing lies in an empty range, and at address 0 only what is empty"),
    (r"Producer\.close: `self\._buffer\.put\(LAST\)` twice", "the feeder ends at the first"),
    (
        r"_try_put_index: (`assert .* after|.*_tasks_outstanding < max_tasks)",
        "the assertion states what its callers see to",
    ),
    (
        r"(reducer_override: `number == .* is always False|_is_row_major: `not .* is always True)",
        "only slower: `part` builds the same tensor as `whole`",
    ),
    (
        r"tell_to_stop: `index_queue\.cancel_join_thread\(\)` is left",
        "close_queues cancels again, and nobody joins before: one event fewer",
    ),
    (
        r"worker_id \+ 1 in `StreamEnd\(worker_id\)",
        "the Result around it says which worker; nobody reads this but exercise 6, which compares",
    ),
    (
        r"pythons_memory: `found = .* after `words = ",
        "getstate() changes nothing, and the view shows what is there later",
    ),
    (
        r"gauss_memory: [02] in place of 1",
        "as a seed any number is as good (in the pair that is looked for, test_memory_is_found_where_it_was sees it)",
    ),
    (
        r"torchs_memory: [35] in place of 4",
        "where a change is looked for, a word more or less is as good (elsewhere that test sees it)",
    ),
    (
        r"randomness\.signs: -?1 in place of 0",
        "whatever is drawn changes another of the words, too: test_a_number_that_was_drawn_is_seen_in_memory passes",
    ),
    # Only elsewhere.
    (
        r"(gauss|torchs)_memory: ",
        "a precaution against builds of numpy and torch that lay memory out otherwise: none of those tried does",
    ),
    (r"^accelerator\.|set_device_index", "only with an accelerator"),
    (r"reducer_override: .* without `thing\.device\.type == 'cpu'`", "only with an accelerator"),
)

MEMORY = "tests/minidl/test_checkpoint.py::test_memory_is_found_where_it_was"

# The same, and the test that kills it: `python -m tests.minidl.simulated.killing --tests` runs these.
KILLED_BY = (
    (
        r"^pinning\.pin_loop: (`(torch\.set_num_threads|world\.name_thread)\(.*\)` is left|2 in place of 1)",
        "tests/minidl/test_pinning.py::test_the_pin_thread_has_a_name_and_takes_one_core",
    ),
    (
        r"^shutdown\.end_pin_thread: .* without `thread\.is_alive",
        "tests/minidl/test_pinning.py::test_a_pin_thread_that_cannot_start_is_not_waited_for",
    ),
    (
        r"^queues\.ThreadQueue\.get: `self\.waiting = False` after",
        "tests/minidl/test_queues.py::test_an_interrupt_as_a_message_is_taken_does_not_count_as_one_while_waiting",
    ),
    (
        r"^worker\.run: `job\.world\.name_thread\(.*\)` is left",
        "tests/minidl/test_worker.py::test_a_worker_has_a_name_for_the_systems_tools",
    ),
    (
        r"^parallel\.ParallelIterator\.__init__: `shut_down_at_exit.* after `self\._reset",
        "tests/minidl/test_shutdown.py::test_a_loader_that_a_daemon_thread_builds_is_shut_down_at_exit",
    ),
    (
        r"^shutdown\.use_force: .* without `worker\.exitcode or",
        "tests/minidl/test_shutdown.py::test_a_batch_whose_memory_has_a_name_can_be_passed_on_after_the_epoch",
    ),
    (
        r"_try_put_index: `if worker_id is None` after `self\._task_info",
        "tests/minidl/test_shutdown.py::test_after_a_stream_no_batch_is_left_to_be_yielded",
    ),
    (
        r"^deaths\.explain_death: `process\.join.* after `code = ",
        "tests/minidl/test_signals.py::test_the_exit_code_may_come_after_the_end",
    ),
    (
        r"_new_epoch: `self\._epoch = -1` after `self\._numbered",
        "tests/minidl/test_signals.py::test_wherever_ctrl_c_comes_as_an_epoch_begins_the_loader_can_be_iterated",
    ),
    (
        r"^startup\.start_workers: `if worker\.pid is not None` after",
        "tests/minidl/test_signals.py::test_ctrl_c_as_the_ends_of_a_started_workers_pipes_are_closed_leaves_no_worker",
    ),
    (
        r"_reset: `self\._begin_epoch.* after `self\._send_idx",
        "tests/minidl/test_signals.py::test_ctrl_c_as_a_later_epoch_begins_leaves_the_iterator_at_its_end",
    ),
    (
        r"^deaths\.check_health: `raise RuntimeError.* is left",
        "tests/minidl/test_signals.py::test_a_death_that_a_handlers_next_has_raised_is_raised_by_the_one_it_interrupted",
    ),
    (
        r"^pickling\.Pickled\.__init__: `self\.dispatch_table = reducers` is left",
        "tests/minidl/test_transport.py::test_every_kind_of_data_arrives_as_by_torchs_transport",
    ),
    (
        r"^worker\.run: `job\.world\.on_interrupt.* (after|is left out)|^worker\.Worker\.note_interrupt: False",
        "tests/minidl/test_worker.py::test_a_worker_ends_at_an_interrupt_that_python_swallowed",
    ),
    (
        r"^loader\.DataLoader\.__iter__: .* without `iterator\._owner_pid",
        "tests/minidl/test_signals.py::test_a_fork_of_main_gets_workers_of_its_own_from_a_persistent_loader",
    ),
    (
        r"^events\.number_loaders_from: (9|11) in place of 10",
        "tests/minidl/test_events.py::test_the_loaders_of_a_worker_have_numbers_that_fit",
    ),
    (
        r"^checkpoint\.randomness\.(signs: .* without `RAND\._bit_generator|_numpy: `return json.* is left)",
        "tests/minidl/test_checkpoint.py::test_generators_are_read_and_put_back_whatever_numpy_draws_from",
    ),
    (
        r"^checkpoint\.randomness\._python: `_, words, gauss = .* after `memory",
        "tests/minidl/test_checkpoint.py::test_memory_that_is_not_found_is_not_needed",
    ),
    (
        r"^checkpoint\.randomness\.(pythons|numpys)_memory: .* is always True",
        "tests/minidl/test_checkpoint.py::test_memory_that_holds_something_else_is_not_taken",
    ),
    (
        r"^checkpoint\.randomness\.pythons_memory: (?!`found = .* after)",
        f"{MEMORY}[PYTHON]",
    ),
    (r"^checkpoint\.randomness\.numpys_memory: ", f"{MEMORY}[NUMPY]"),
    (
        r"^checkpoint\.randomness\.gauss_memory: "
        r"(?!`at >= 0` (is always True|with Gt)|-1 in place of 0|1 in place of 0|[02] in place of 1)",
        f"{MEMORY}[NUMPYS_GAUSS]",
    ),
    (
        r"^checkpoint\.randomness\.torchs_memory: (?!`torch\.rand.* is left|`if at < 0` after|`return None`"
        r"|`at < 0` (is always False|with LtE)|`len\(seen\) == 2` is always True|.* without `0`|-?1 in place of 0"
        r"|`engine\(other\) \+ at - 4` with Add|[35] in place of 4|0 in place of 1|12[79] in|62[46] in place of 625)",
        f"{MEMORY}[TORCHS]",
    ),
    (
        r"^loader\.DataLoader\.__len__: `if not isinstance.* after `length = ",
        "tests/minidl/test_loader.py::test_the_length_of_a_map_style_loader_is_its_samplers",
    ),
    (
        r"^events\.install: `return previous` is left",
        "tests/minidl/test_events.py::test_whoever_installs_a_recorder_is_given_the_one_it_replaces",
    ),
    (
        r"^events\.emit: (`_recorder is None` is always False|`if _recorder is None` after `try`)",
        "tests/minidl/test_events.py::test_without_a_recorder_nothing_is_reported",
    ),
    (
        r"^events\.emit: (.*print.* (after `traceback|is left out)|no `except Exception`)",
        "tests/minidl/test_events.py::test_a_recorder_that_raises_is_removed_and_reported_once",
    ),
)


def reason(mutant: str) -> str | None:
    """`mutant` is "module.function: what is changed"."""
    if test := killed_by(mutant):
        return f"killed by {test}"
    return next((why for pattern, why in REASONS if re.search(pattern, mutant)), None)


def killed_by(mutant: str) -> str | None:
    """The test with real processes that fails with it."""
    return next((test for pattern, test in KILLED_BY if re.search(pattern, mutant)), None)
