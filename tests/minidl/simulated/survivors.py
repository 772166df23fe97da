"""What is known of the generated mutants that live: the reason, or the test with real processes that sees them."""

from __future__ import annotations

import re

from tests.minidl.simulated.reasons import REASONS

TESTS = "tests/minidl/"

# The test, and a pattern for each group of mutants that it kills: "module.function: what is changed". The first that
# matches counts. `python -m tests.minidl.simulated.killing --tests` runs these.
KILLED_BY = {
    "test_pinning.py::test_the_pin_thread_has_a_name_and_takes_one_core": (
        r"^pinning\.pin_loop: (`(torch\.set_num_threads|world\.name_thread)\(.*\)` is left|2 in place of 1)",
    ),
    "test_pinning.py::test_a_pin_thread_that_cannot_start_is_not_waited_for": (
        r"^shutdown\.end_pin_thread: .* without `thread\.is_alive",
        r"^parallel\.ParallelIterator\.__init__: `if self\._pin_memory` after `signals\.watch",
    ),
    "test_queues.py::test_the_queue_between_threads_keeps_the_order[None]": (
        r"^queues\.ThreadQueue\._wait: `(timeout|deadline) is None` is always False$",
    ),
    "test_queues.py::test_an_interrupt_as_a_message_is_taken_does_not_count_as_one_while_waiting": (
        r"^queues\.ThreadQueue\.get: `self\.waiting = False` after",
    ),
    "test_worker.py::test_a_worker_has_a_name_for_the_systems_tools": (
        r"^worker\.run: `job\.world\.name_thread\(.*\)` is left",
    ),
    "test_shutdown.py::test_a_loader_that_a_daemon_thread_builds_is_shut_down_at_exit": (
        r"^parallel\.ParallelIterator\.__init__: `shut_down_at_exit.* after `self\._reset",
    ),
    "test_shutdown.py::test_a_batch_whose_memory_has_a_name_can_be_passed_on_after_the_epoch": (
        r"^shutdown\.use_force: .* without `worker\.exitcode or",
    ),
    "test_shutdown.py::test_after_a_stream_no_batch_is_left_to_be_yielded": (
        r"_try_put_index: `if worker_id is None` after `self\._task_info",
    ),
    "test_signals.py::test_an_exit_with_a_batch_in_hand_does_not_lose_it_in_silence": (
        r"^parallel\.ParallelIterator\._next_data: .* without `has_batch`$",
    ),
    "test_signals.py::test_the_exit_code_may_come_after_the_end": (
        r"^deaths\.explain_death: `process\.join.* after `code = ",
    ),
    "test_signals.py::test_wherever_ctrl_c_comes_as_an_epoch_begins_the_loader_can_be_iterated": (
        r"_new_epoch: `self\._epoch = -1` after `self\._numbered",
    ),
    "test_signals.py::test_ctrl_c_as_the_ends_of_a_started_workers_pipes_are_closed_leaves_no_worker": (
        r"^startup\.start_workers: `if worker\.pid is not None` after",
    ),
    "test_signals.py::test_ctrl_c_as_a_later_epoch_begins_leaves_the_iterator_at_its_end": (
        r"_reset: `self\._begin_epoch.* after `self\._send_idx",
    ),
    "test_signals.py::test_a_death_that_a_handlers_next_has_raised_is_raised_by_the_one_it_interrupted": (
        r"^deaths\.check_health: `raise RuntimeError.* is left",
        r"^deaths\.check_health: `iterator\._failure is not None` is always False",
    ),
    "test_transport.py::test_every_kind_of_data_arrives_as_by_torchs_transport": (
        r"^pickling\.Pickled\.__init__: `self\.dispatch_table = reducers` is left",
        r"^pickling\.Pickled\.__init__: `self\.dispatch_table = reducers` after",
        r"^pickling\._is_plain: .* without `not tensor\.is_cpu`",
    ),
    "test_worker.py::test_a_worker_ends_at_an_interrupt_that_python_swallowed": (
        r"^worker\.run: `job\.world\.on_interrupt.* (after|is left out)|^worker\.Worker\.note_interrupt: False",
        r"^worker\.Worker\.loop: (`return End\.INTERRUPTED` is left|`not self\.interrupted` is always True)",
        r"^worker\.Worker\.note_interrupt: (it returns at once|`self\.interrupted = True` is left)",
    ),
    "test_signals.py::test_a_fork_of_main_gets_workers_of_its_own_from_a_persistent_loader": (
        r"^loader\.DataLoader\.__iter__: .* without `iterator\._owner_pid",
    ),
    "test_events.py::test_the_loaders_of_a_worker_have_numbers_that_fit": (
        r"^events\.number_loaders_from: (9|11) in place of 10",
    ),
    "test_checkpoint.py::test_generators_are_read_and_put_back_whatever_numpy_draws_from": (
        (
            r"^checkpoint\.randomness\.signs: (not `not \(PYTHON|`if not \(PYTHON.* after `return|`not \(PYTH"
            r"ON.*` is always False$|the other of and, or in `not \(PYTHON|`RAND\._bit_generator is not BITS`"
            r" with Is$)"
        ),
        (
            r"^checkpoint\.randomness\.put_back: (`numpy\.random\.set_state\(json.*` is left out|`len\(states"
            r"\['numpy'\]\).*` is always False)$"
        ),
        (
            r"^checkpoint\.randomness\._numpy: (`if NUMPY is None or .* after `return|not `NUMPY is None or|`"
            r"NUMPY is None or .*` is always False$|.* without `RAND\._bit_generator|the other of and, or|`RA"
            r"ND\._bit_generator is not BITS` with Is$|True in place of False$)"
        ),
        r"^checkpoint\.randomness\.(signs: .* without `RAND\._bit_generator|_numpy: `return json.* is left)",
    ),
    "test_checkpoint.py::test_memory_that_is_not_found_is_not_needed": (
        (
            r"^checkpoint\.randomness\.signs: (.* without `(not \(PYTHON.*|PYTHON|NUMPY|TORCHS)`$|the other o"
            r"f and, or in `PYTHON)"
        ),
        (
            r"^checkpoint\.randomness\._python: (`memory = array.* is left out|not `PYTHON is None`|`PYTHON i"
            r"s None` (is always False|with IsNot)|0 in place of 1( \(2\))?)$"
        ),
        r"^checkpoint\.randomness\._numpy: (.* without `NUMPY is None`|`NUMPY is None` with IsNot)$",
        r"^checkpoint\.randomness\._python: `_, words, gauss = .* after `memory",
        r"^checkpoint\.randomness\.signs: (`return object\(\)` is left out|.* without `NUMPYS_GAUSS`)$",
        r"^checkpoint\.randomness\._python: (`_, words, gauss = .* is left out|2 in place of 1( \(2\))?)$",
        r"^checkpoint\.randomness\._numpy: (.* without `NUMPYS_GAUSS is None`|`NUMPYS_GAUSS is None` with IsNot)$",
    ),
    "test_checkpoint.py::test_a_sampler_that_draws_from_torchs_default_generator_now_goes_on_as_with_its_own": (
        (
            r"^checkpoint\.randomness\.put_back: `torch\.default_generator\.set_state.* after `for number, ge"
            r"nerator"
        ),
    ),
    "test_checkpoint.py::test_a_number_that_was_drawn_is_seen_in_memory": (
        r"^checkpoint\.randomness\.signs: `not \(PYTHON.*` is always True$",
    ),
    "test_checkpoint.py::test_a_state_is_no_longer_than_the_memory_it_was_read_from": (
        r"^checkpoint\.randomness\._numpy: `NUMPY is None or .*` is always True$",
    ),
    "test_checkpoint.py::test_memory_that_holds_something_else_is_not_taken": (
        r"^checkpoint\.randomness\.(pythons|numpys)_memory: .* is always True",
    ),
    "test_checkpoint.py::test_memory_is_found_where_it_was[PYTHON]": (
        r"^checkpoint\.randomness\.pythons_memory: (?!`found = .* after)",
    ),
    "test_checkpoint.py::test_memory_is_found_where_it_was[NUMPY]": (r"^checkpoint\.randomness\.numpys_memory: ",),
    "test_checkpoint.py::test_memory_is_found_where_it_was[NUMPYS_GAUSS]": (
        (
            r"^checkpoint\.randomness\.gauss_memory: (?!`at >= 0` (is always True|with Gt)|-1 in place of 0|1 in"
            r" place of 0|[02] in place of 1)"
        ),
    ),
    "test_checkpoint.py::test_memory_is_found_where_it_was[TORCHS]": (
        (
            r"^checkpoint\.randomness\.torchs_memory: (?!`torch\.rand.* is left|`if at < 0` after|`return None`"
            r"|`at < 0` (is always False|with LtE)|`len\(seen\) == 2` is always True|.* without `0`|-?1 in place"
            r" of 0|`engine\(other\) \+ at - 4` with Add|[35] in place of 4|0 in place of 1|12[79] in|62[46] in"
            r" place of 625)"
        ),
    ),
    "test_loader.py::test_the_length_of_a_map_style_loader_is_its_samplers": (
        r"^loader\.DataLoader\.__len__: `if not isinstance.* after `length = ",
    ),
    "test_events.py::test_whoever_installs_a_recorder_is_given_the_one_it_replaces": (
        r"^events\.install: `return previous` is left",
    ),
    "test_events.py::test_without_a_recorder_nothing_is_reported": (
        r"^events\.emit: (`_recorder is None` is always False|`if _recorder is None` after `try`)",
        r"^events\.emit: `return` is left out",
    ),
    "test_events.py::test_a_recorder_that_raises_is_removed_and_reported_once": (
        r"^events\.emit: (.*print.* (after `traceback|is left out)|no `except Exception`)",
        r"^events\.emit: (`install\(None\)` is left out|`words = )",
    ),
    "test_signals.py::test_ctrl_c_as_a_death_is_noticed_in_training_does_not_hide_the_death": (
        r"^deaths\.notice_deaths: (no `except KeyboardInterrupt`|`iterator\._failure = )",
    ),
    "test_faults.py::test_a_death_then_its_lost_tasks_then_the_error_are_emitted": (
        r"^deaths\.fail_for_death: `for task_id, _ in tasks` (after `fail|is left out)",
    ),
    "test_events.py::test_a_recorder_that_raises_is_removed_before_that_is_printed": (
        r"^events\.emit: `install\(None\)` after",
    ),
    "test_events.py::test_a_recorder_that_raises_breaks_nothing_where_stderr_is_closed": (
        r"^events\.emit: no `with contextlib",
    ),
    "test_signals.py::test_what_a_handler_raises_while_main_waits_comes_out_of_next_and_costs_no_batch[minidl-plain]": (
        r"^parallel\.ParallelIterator\._get_data: `if self\._data_queue\.waiting` after `fail_for_lost_message",
        r"^parallel\.ParallelIterator\._get_data: `raise` is left out",
        r"^parallel\.ParallelIterator\._get_data: `self\._data_queue\.waiting` is always False",
    ),
    "test_signals.py::test_a_fork_of_main_takes_nothing_from_it": (
        r"^parallel\.ParallelIterator\._next_data: `if self\._world\.pid\(\) != self\._owner_pid` after `task_id = ",
        r"^shutdown\.shut_down: .* without `iterator\._world\.pid\(\) != iterator\._owner_pid`",
    ),
    "test_transport.py::test_a_view_brings_its_whole_storage_from_the_half_of_it_on": (
        r"^pickling\.Pickled\.__init__: `2 \* \(last - first\) >= nbytes` with Gt",
    ),
    "test_transport.py::test_a_view_of_nothing_brings_next_to_nothing": (
        r"^pickling\._extent: (`tensor\.numel\(\)` is always True|`first \* tensor\.itemsize` with FloorDiv$)",
    ),
    "test_transport.py::test_tensors_begin_at_multiples_of_64_bytes": (
        r"^pickling\.Pickled\.reducer_override: `isinstance\(thing, np\.ndarray\) .* without `not \(thing\.flags",
    ),
    "test_pinning.py::test_every_batch_goes_through_the_pin_thread_once": (
        r"^pinning\.pinned: worker_id \+ 1 in `pin_batch",
    ),
    "test_pinning.py::test_what_is_of_two_kinds_is_pinned_as_by_torch": (
        r"^pinning\.pin_memory: `device == HOST` is always True",
        r"^pinning\._map_tensors: `if hasattr\(data, 'pin_memory'\)` after `if isinstance\(data, \(str, bytes\)\)`",
        r"^pinning\._map_tensors: `if isinstance\(data, \(str, bytes\)\)` after",
        r"^pinning\._map_tensors: `if isinstance\(data, collections\.abc\.Mapping\)` after",
    ),
    "test_queues.py::test_without_a_thread_put_does_not_block_on_a_full_pipe": (
        r"^queues\.Producer\._forward: `self\._writer\.has_room\(SMALL\)` is always True",
    ),
    "test_queues.py::test_once_the_feeder_has_written_all_put_writes_again": (
        r"^queues\.DirectProducer\.(_forward: `self\._unwritten\.put\(None\)` twice|_send: .*get\(\)` is left)",
    ),
    "test_queues.py::test_without_a_thread_nobody_needs_to_read": (
        r"^queues\.Producer\._forward: no `with contextlib\.suppress",
    ),
    "test_queues.py::test_without_a_thread_a_message_that_is_no_small_one_is_written_by_put": (
        r"^queues\.DirectProducer\._forward: `self\._unwritten\.put\(None\)` after",
    ),
    "test_signals.py::test_a_queue_whose_close_ctrl_c_has_interrupted_can_be_closed_again": (
        r"^queues\.Producer\.close: `if self\._feeder is None` after `self\._closed = True`",
    ),
    "test_queues.py::test_a_feeder_does_not_wait_for_itself": (
        r"^queues\.Producer\.wait_for_feeder: .* without `not self\._world\.is_current",
    ),
    "test_queues.py::test_a_small_message_is_one_write": (
        r"^queues\.Producer\._write: (not `sum|`sum.* < ONE_WRITE` is always False)",
    ),
    "test_queues.py::test_the_feeder_ends_when_the_reading_end_is_closed": (
        r"^queues\.Producer\._emit_send_failed: it returns at once",
    ),
    "test_queues.py::test_an_interrupt_while_reading_does_not_count_as_one_while_waiting": (
        r"^queues\.Consumer\.get: `self\.waiting = False` (is left out|after)",
    ),
    "test_queues.py::test_pipes_are_served_in_turn": (
        r"^queues\.Consumer\.get: `self\._take_in\(.* after `channel = ",
    ),
    "test_queues.py::test_an_empty_queue_times_out": (
        r"^queues\.Consumer\._wait: `self\.waiting = False` after `if not",
    ),
    "test_queues.py::test_died_comes_though_the_pipe_is_still_open": (
        r"^queues\.Consumer\._read_to_the_end: `self\._waiter\.remove\(channel\.reader\)` is left out",
    ),
    "test_queues.py::test_a_closed_queue_has_no_file_open": (
        r"^queues\.Consumer\.close: `self\._waiter\.close\(\)` is left out",
    ),
    "test_queues.py::test_the_news_of_messages_that_nobody_waited_for_does_not_pile_up": (
        r"^queues\.ThreadQueue\.put: (`self\._news\.put\(None\)` twice|`not self\._news\.qsize\(\)` is always True)",
    ),
    "test_queues.py::test_the_queue_between_threads_keeps_the_order": (
        r"^queues\.ThreadQueue\._wait: (-1\.0 in place of 0\.0|True in place of False|no `except Empty`)",
        r"^queues\.ThreadQueue\._wait: `self\.waiting = False` is left out",
    ),
    "test_batches.py::test_an_error_that_cannot_be_pickled_is_named": (
        r"^queues\.Producer\._packed: True in place of False",
    ),
    "test_batches.py::test_an_epoch_whose_stream_cannot_be_opened_has_not_begun": (
        r"^serial\.SerialIterator\.__init__: `self\._source = .* after `self\._begin_epoch",
    ),
    "test_checkpoint.py::test_the_sampler_of_a_dataset_that_grows_goes_on_in_its_epoch": (
        r"^serial\.SerialIterator\.__init__: `if saved is not None and goes_on` after `self\._source = ",
    ),
    "test_checkpoint.py::test_batches_are_counted_on_with_other_workers": (
        r"^serial\.SerialIterator\.__init__: `if saved is not None and goes_on` after `self\._repeat",
    ),
    "test_events.py::test_an_exception_is_described_by_type_and_text": (r"^events\.describe: ",),
    "test_signals.py::test_an_iterator_that_another_thread_shuts_down_is_left_alone": (
        r"^signals\._look: .* without `iterator\._shutdown`",
    ),
    "test_signals.py::test_a_death_is_not_raised_where_multiprocessing_could_lose_what_it_has_just_read": (
        r"^signals\._look: (`if .*\(DELICATE\)` after|`return` is left|.*\(DELICATE\)` is always False)",
        r"^signals\._module: `frame is not None` is always True",
    ),
    "test_shutdown.py::test_ctrl_c_ends_the_workers_in_silence": (r"^worker\.run: no `except KeyboardInterrupt`",),
    "test_worker.py::test_what_keeps_a_worker_from_its_epochs_is_told_once": (
        r"^worker\.Worker\.wrap: `emit_failed\(.* after `return",
    ),
    "test_worker.py::test_torchs_default_collate_stacks_in_the_slot_too": (
        r"^worker\.run: (`stack_for_torch_too\(\)` is left|not `slots`|`slots` is always False)",
    ),
    "test_worker.py::test_a_worker_knows_its_number_and_its_seeds": (
        r"^worker\.seed_everything: `torch\.set_num_threads\(1\)` is left",
    ),
    "test_checkpoint.py::test_a_state_says_nothing_of_workers_that_draw_nothing": (
        r"^worker\.Worker\.begin_epoch: `self\.source\.begin\(\)` is left",
        r"^checkpoint\.source\.Source\.begin: it returns at once",
        r"^checkpoint\.source\.Source\.begin: `self\.signs, self\.told, .* is left out$",
    ),
    "test_transport.py::test_threads_that_collate_at_once_get_different_pieces": (
        r"transport\.reserve: `nbytes >= DIRECT` with Gt",
    ),
    "test_transport.py::test_only_what_is_on_the_cpu_is_collated_in_a_slot": (
        r"transport\.reserve: .* without `device\.type",
    ),
    "test_transport.py::test_what_the_worker_keeps_is_not_written_over": (
        r"Packer\.room: `self\._slots\[slot\] = .* is left",
    ),
    "test_transport.py::test_there_are_no_more_slots_than_the_header_has_numbers_for": (
        r"Unpacker\.__init__: (2 in place of 1|16 in place of 15)",
    ),
    "test_transport.py::test_unpacking_a_message_twice_lends_its_slot_once": (
        r"Unpacker\._take_back: `if slot not in .* after `if isinstance",
        r"Unpacker\._take_back: .* without `self\._lent\.get\(slot, back\) is not back`",
        r"Unpacker\.unpack: `begin \+ length` with Sub",
        r"^transport\.copied: `array\[:\] = data` ",
    ),
    "test_transport.py::test_a_slot_that_is_given_back_is_not_granted_to_two_tasks": (
        r"Unpacker\.unpack: `self\._back\.put\(slot\)` twice",
    ),
    "test_transport.py::test_a_thread_may_collate_while_the_batch_is_pickled": (
        r"Packer\.pack: `pickled = .* after `taken = ",
    ),
    "test_transport.py::test_a_batch_of_small_tensors_needs_no_memory": (
        r"transport\.reserve: `nbytes >= DIRECT` is always True",
    ),
    "test_transport.py::test_a_batch_that_just_fits_stays_in_its_slot": (
        r"Room\.reserve: `end <= owner\.nbytes` with Lt",
        r"Room\.with_bytes: `self\.owner\.nbytes < nbytes` with LtE",
    ),
    "test_transport.py::test_a_fork_while_a_batch_is_unpacked_retires_no_slot_that_is_not_lent_yet": (
        r"Unpacker\.unpack: `if nbytes` after `if slot != NO_SLOT",
    ),
    "test_transport.py::test_a_forked_child_retires_nothing_when_it_forks": (
        r"before_fork: (`return` is left|`(if )?self\._world\.pid\(\) != self\._pid` (after|is always False))",
    ),
    "test_transport.py::test_a_tensor_that_fills_its_storage_is_built_the_quick_way": (
        r"^pickling\.Pickled\.reducer_override: `number == .* is always False",
        r"^pickling\.Pickled\.reducer_override: `if number == count .* after `return \(build_part",
        r"^pickling\.Pickled\.reducer_override: `return \(build_whole.* is left out",
        r"^pickling\._is_row_major: (it returns at once|`not tensor.* is always True)",
        r"^pickling\._is_row_major: (`return 1 not .* is left|the other of and, or in `1 not .* or tensor\.stride)",
        r"^pickling\._is_row_major: .* without `tensor\.stride",
        r"^pickling\._strides: (it returns at once|`return .* is left)",
    ),
    "test_transport.py::test_what_is_lent_at_a_fork_is_retired_once": (
        r"before_fork: `not loan\.retired` is always True",
        r"Unpacker\.unpack: .* without `slot != NO_SLOT`",
    ),
    "test_transport.py::test_a_piece_of_memory_that_cannot_be_had_is_not_taken": (
        r"Room\.reserve: True in place of False",
    ),
    "test_transport.py::test_what_cannot_be_had_is_refused": (
        r"transport_of: `if asked == 'slots' .* after `return",
        (
            r"transport_of: (`raise RuntimeError.* is left|.* is always False|`name` is always True"
            r"|`world\.can_send_memory\(\)` is always True)"
        ),
    ),
    "test_checkpoint.py::test_torchdata_and_minidl_go_on_from_each_others_states": (
        r"^checkpoint\.draws\.ShuffleState\.__getitem__: `key == 'generator'` is always False",
    ),
    "test_checkpoint.py::test_a_state_tells_the_epoch_that_its_batches_are_of": (
        r"^checkpoint\.draws\.Draws\.(begin|_draw): `self\.share = share_of\(self\.sampler\)` is left out",
        r"^checkpoint\.draws\.Draws\._draw: `len\(self\.begun_with\) == 1` is always True",
        r"^checkpoint\.draws\.Draws\.go_on: `ours\.get\('epoch'\) is not None` is always False",
        r"^checkpoint\.draws\.Draws\.go_on: `self\.sampler\.set_epoch\(ours\['epoch'\]\)` is left out",
    ),
    "test_checkpoint.py::test_a_sampler_is_told_its_epoch_before_its_place": (
        r"^checkpoint\.draws\.Draws\.go_on: `if ours\.get\('epoch'\) is not None` after `if sampler_state",
        r"^checkpoint\.draws\.Draws\.go_on: `not drawn or at_the_end` is always True",
    ),
    "test_checkpoint.py::test_keys_that_were_drawn_when_the_sampler_was_iterated_are_drawn_again": (
        r"^checkpoint\.draws\.Draws\.go_on: `begun_with` is always False",
        r"^checkpoint\.draws\.Draws\.go_on: `if begun_with` after `self\.begin\(\)`",
        r"^checkpoint\.draws\.Draws\.go_on: `self\.begin\(\)` (is left out|after `if len\(begun_with\) > 1`)",
        r"^checkpoint\.draws\.Draws\.go_on: `randomness\.put_back\(begun_with\[0\], self\.generators\)` is left out",
    ),
    "test_checkpoint.py::test_slow_winding_is_told": (
        r"^checkpoint\.draws\.Draws\._wind: no `with winding",
        r"^checkpoint\.draws\.Draws\.go_on: .* without `self\.iterable`",
        r"^checkpoint\.source\.winding: (`steps and took > SLOW` without `steps`|[24] in place of 3)$",
    ),
    "test_checkpoint.py::test_the_rank_is_the_samplers_and_else_the_processs": (
        r"^checkpoint\.draws\.share_of: `rank is None and .*` (is always False|without `rank is None`)$",
        (
            r"^checkpoint\.draws\.share_of: (`if rank is None and .* after `share = |`rank ="
            r" torch\.distributed\.get_rank.* is left out|`rank is None` with)"
        ),
    ),
    "test_checkpoint.py::test_a_state_before_any_epoch_is_no_event_of_one": (
        r"^checkpoint\.draws\.Draws\.__init__: -1 in place of 0$",
        r"^checkpoint\.position\.Position\.state_dict: `self\.epoch_id` is always True",
        r"^checkpoint\.draws\.Draws\.__init__: -?1 in place of 0$",
        r"^checkpoint\.position\.Position\.state_dict: (not `self\.epoch_id`|`self\.epoch_id` is always False)$",
    ),
    "test_checkpoint.py::test_between_two_snapshots[0]": (
        r"^checkpoint\.position\.snapshot_interval: .* without `loader\.num_workers`",
    ),
    "test_checkpoint.py::test_between_two_snapshots[2]": (
        r"^checkpoint\.telling\.Telling\.is_wanted: 0 in place of 1$",
    ),
    "test_checkpoint.py::test_with_fewer_workers_a_state_says_nothing_of_the_others": (
        r"^checkpoint\.saved\.fitted: 2 in place of 1$",
    ),
    "test_checkpoint.py::test_what_is_drawn_to_see_whether_a_sampler_is_at_its_end_is_not_gone": (
        r"^checkpoint\.saved\.next_epoch: `saved\.put_back_random\(loader\)` after",
        (
            r"^checkpoint\.saved\.next_epoch: (`if sampler_state is not None` after"
            r" `saved\.put_back_random\(loader\)`|`saved\.put_back_random\(loader\)` is left out)$"
        ),
    ),
    "test_checkpoint.py::test_half_a_way_to_keep_a_place_is_none": (
        r"^checkpoint\.source\.is_stateful: the other of and, or",
        r"^checkpoint\.source\.is_stateful: `hasattr\(thing, 'state_dict'\) and .* without ",
    ),
    "test_checkpoint.py::test_a_worker_that_could_not_tell_its_place_tells_it_later": (
        r"^checkpoint\.source\.Source\.__init__: `self\.at_its_begin = False` is left out",
        r"^checkpoint\.source\.Source\.__init__: `self\.(told: dict.*|signs: object = None)` is left out$",
    ),
    "test_checkpoint.py::test_a_stream_whose_dataset_knows_its_place_is_not_wound_forward": (
        r"^checkpoint\.source\.Source\.place: .* without `dataset_state is None`",
    ),
    "test_checkpoint.py::test_a_place_that_a_worker_comes_back_to_is_told_again": (
        r"^checkpoint\.source\.Source\.news: `self\.told = parts` is left out",
    ),
    "test_checkpoint.py::test_a_state_before_any_epoch_is_at_the_begin_of_one": (
        r"^checkpoint\.draws\.Draws\.__init__: True in place of False$",
    ),
    "test_checkpoint.py::test_torchdata_and_minidl_go_on_from_each_others_states[1-counting-in turn-0]": (
        r"^checkpoint\.draws\.Draws\.layout: no `if state is not None`",
    ),
    "test_checkpoint.py::test_what_a_sampler_draws_when_it_is_asked_for_its_epoch_is_not_drawn_again": (
        r"^checkpoint\.draws\.Draws\.begin: `self\.begun_with = .* after `self\.share = ",
        r"^checkpoint\.draws\.Draws\._draw: `self\.share = .* after `self\.begun_with\.append",
    ),
    "test_checkpoint.py::test_what_is_drawn_to_see_whether_a_sampler_is_at_its_end_comes_before_its_keys": (
        r"^checkpoint\.draws\.Draws\.go_on: `if sampler_state is not None` after `if begun_with`",
    ),
    "test_checkpoint.py::test_the_epoch_that_is_set_after_a_place_was_found_is_not_its_own": (
        r"^checkpoint\.draws\.Draws\.go_on: `self\.begun_with = begun_with or self\.begun_with` is left out",
        r"^checkpoint\.draws\.Draws\.go_on: `begun_with or self\.begun_with` without `begun_with`",
        r"^checkpoint\.draws\.Draws\.go_on: the other of and, or in `begun_with or self\.begun_with`",
    ),
    "test_checkpoint.py::test_what_torchdata_has_shuffled_is_stopped_and_goes_on_again[0-weighted-0]": (
        r"^checkpoint\.draws\.Draws\.go_on: `begun_with or self\.begun_with` without `self\.begun_with`",
    ),
    "test_checkpoint.py::test_an_epoch_that_torchdata_began_does_not_grow": (
        r"^checkpoint\.draws\.Draws\.go_on: `self\._find\(iter_state\)` after `if at_the_end`",
    ),
    "test_checkpoint.py::test_torchdata_knows_no_place_in_torchs_own_batches": (
        r"^checkpoint\.draws\.Draws\.go_on: `self\.batches and .*` without `iter_state is not None`",
    ),
    "test_checkpoint.py::test_what_torchdata_has_shuffled_is_stopped_and_goes_on_again[0-generator-0]": (
        r"^checkpoint\.draws\.Draws\.go_on: `self\.shuffles and .*` without `not ours\.get\('given'\)`",
    ),
    "test_checkpoint.py::test_torchdata_and_minidl_then_other_ranks": (
        r"^checkpoint\.draws\.Draws\.go_on: `samples = ours\.get\('samples', drawn\)` after `if self\.batches",
        r"^checkpoint\.draws\.Draws\.go_on: `samples = iter_state\['samples_yielded'\]` is left out",
    ),
    "test_checkpoint.py::test_without_order_a_state_of_another_rank_is_refused": (
        (
            r"^checkpoint\.draws\.Draws\.go_on: (`raise ValueError\('the state is of another rank.* is left"
            r"|`other` is always False)"
        ),
    ),
    "test_checkpoint.py::test_what_torchdata_has_shuffled_is_not_shuffled_anew": (
        r"^checkpoint\.draws\.shuffled_from: 0 in place of 1$",
    ),
    "test_checkpoint.py::test_a_torch_without_ranks_has_none": (
        r"^checkpoint\.draws\.share_of: .* without `torch\.distributed\.is_available\(\)`",
    ),
    "test_checkpoint.py::test_a_loader_is_asked_for_its_state_before_its_sampler": (
        r"^checkpoint\.position\.Position\.state_dict: `if self\.epoch_id` after `mark = ",
    ),
    "test_checkpoint.py::test_ctrl_c_at_the_end_of_an_epoch_does_not_change_the_next": (
        r"^checkpoint\.position\.Position\.finish: `for task_id in sorted\(self\.arrived\)` after `self\.finished",
    ),
    "test_checkpoint.py::test_what_is_drawn_after_a_state_was_loaded_stays_drawn": (
        (
            r"^checkpoint\.saved\.fitted: (`saved = replace\(saved, ours=.* is left out|`'random' in saved\.ours`"
            r" is always False)$"
        ),
    ),
    "test_checkpoint.py::test_a_stream_of_torchdatas_goes_on_between_two_snapshots": (
        r"^checkpoint\.saved\.fitted: `saved\.steps \+ saved\.since` with Sub$",
    ),
    "test_checkpoint.py::test_a_state_says_nothing_of_workers_that_have_not_moved": (
        r"^checkpoint\.source\.Source\.news: `changed` is always True$",
    ),
    "test_checkpoint.py::test_what_would_have_come_comes[map-in turn-{}]": (
        r"^checkpoint\.source\.Source\.place: .* without `stream is not None`$",
    ),
    "test_checkpoint.py::test_a_worker_is_asked_for_its_place_once_for_each_snapshot": (
        r"^checkpoint\.telling\.Telling\.is_wanted: .* with LtE$",
    ),
    "test_checkpoint.py::test_a_worker_sends_of_its_place_what_has_changed": (
        r"^checkpoint\.source\.Source\.news: (`self\.at_its_begin` is always True|True in place of False)$",
    ),
    "test_checkpoint.py::test_where_nothing_was_drawn_no_state_is_read": (
        r"^checkpoint\.source\.Source\.news: `return \{\}` is left out$",
        r"^checkpoint\.source\.Source\.news: `signs == self\.signs and \(not self\.tells\)` is always False$",
    ),
    "test_checkpoint.py::test_pythons_state_is_read_from_memory": (
        r"^checkpoint\.randomness\._python: `PYTHON is None` is always True$",
    ),
    "test_checkpoint.py::test_a_state_says_nothing_twice": (
        r"^checkpoint\.draws\.Draws\._draw: `self\.begun_with\.append\(.*\)` twice$",
        r"^checkpoint\.source\.layout_of: no `if name != 'place'`$",
        r"^checkpoint\.source\.Source\.place: `stream is self\.dataset` is always False$",
        r"^checkpoint\.source\.Source\.place: `stream is not None and .* without `stream_state is None`$",
        (
            r"^checkpoint\.source\.Source\.place: `if isinstance\(self\.fetcher, IterableFetcher\)` after"
            r" `dataset_state = "
        ),
    ),
}


def reason(mutant: str) -> str | None:
    """`mutant` is "module.function: what is changed"."""
    test = killed_by(mutant)
    return f"killed by {test}" if test else first(REASONS, mutant)


def killed_by(mutant: str) -> str | None:
    """The test with real processes that fails with it."""
    test = first(KILLED_BY, mutant)
    return test and TESTS + test


def first(table: dict[str, tuple[str, ...]], mutant: str) -> str | None:
    return next((each for each, patterns in table.items() for p in patterns if re.search(p, mutant)), None)
