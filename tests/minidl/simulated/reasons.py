"""Why nobody could tell some of the generated mutants from the loader.

Each reason, and a pattern for each group of mutants that it holds for: "module.function: what is changed". The first
pattern that matches counts.
"""

REASONS = {
    # Nobody looks between the two, or neither depends on the other.
    "nobody has the object between the two": (
        r"^queues\.Consumer\.__init__: `self\._channels: .* after `if until",
        r"Room\.__init__: .* after `self\._use",
        r"^pickling\.Pickled\.__init__: `self\.dump\(message\)` after `self\.firsts",
        r"^pickling\.Unpickler\.__init__: `super\(\)\.__init__.* after `tensors = ",
        r"^queues\.DirectProducer\.__init__: `super\(\)\.__init__.* after `self\._unwritten = ",
        r"^checkpoint\.draws\.Draws\.__init__: `self\._seen = .* after `self\.share = ",
        r"^checkpoint\.draws\.Draws\.__init__: `self\.shuffles = .* after `self\.generators = ",
        r"^checkpoint\.draws\.Draws\.begin: `self\.share = .* after `self\._seen = ",
        r"^checkpoint\.draws\.Draws\.go_on: `self\.drawn, self\.samples = .* after `self\._find",
        r"^checkpoint\.position\.Position\.__init__: `self\._passed: list\[int\] = \[\]` after `self\.begin\(",
    ),
    "one flag is as good as another": (r"ParallelIterator\.__init__: `self\._workers_done_event = .* after",),
    "nobody knows of either pipe yet": (r"start_workers: `index_reader, index_writer = .* after",),
    "neither waits, nor can fail": (
        r"start_workers: `iterator\._index_queues\.append.* after `worker = world\.process",
        r"start_workers: `job = Job\(.* after `iterator\._index_queues\.append",
    ),
    "it is looked up only for an end that has been waited for": (
        r"start_workers: `iterator\._ending_of\.append.* after",
    ),
    "only Ctrl-C between the two, in a call that takes no step, could tell": (r"shutdown\.joined: .*` after `",),
    "a Ctrl-C in now() finds the queues closed already: no worse": (r"close_queues: `deadline = .*` after `for",),
    "each closes something else, and neither waits": (
        r"close_queues: `if thread is None.*` after `iterator\._endings",
        r"Consumer\.close: `self\._waiter\.close\(\)` after",
        r"close_queues: `iterator\._endings\.close\(\)` after `iterator\._workers_done_event",
        r"close_queues: `iterator\._worker_result_queue\.close\(\)` after",
        r"start_workers: `index_reader\.close\(\)` after",
    ),
    "one warns, the other asks torch: neither depends on the other": (r"pin_device: .* after `found = ",),
    "if the second is true, the first sets `text` alone": (r"explain_death: `if code is not None and code < 0` after",),
    "never are both true": (
        r"check_worker_options: `if prefetch_factor is not None.* after `if prefetch_factor == 0",
        r"reducer_override: `if isinstance\(thing, np\.ndarray\).* after `if type\(thing\)",
        r"^iterator\.pin_device: `if loader\.pin_memory == HOST` after `if not loader\.pin_memory`",
        r"^loader\.check_worker_options: `if prefetch_factor == 0` after `if persistent_workers and",
        r"^loader\.check_sampling_options: `if batch_sampler is not None and .* after `if batch_size is None and",
        r"^parallel\.ParallelIterator\._next_data: `if has_batch and .* after `if is_ctrl_c and",
        r"Worker\.loop: `if isinstance\(message, Stop\)` after `if isinstance\(message, Died\)",
        r"transport_of: `if asked not in .* after `if asked == 'slots'",
    ),
    "for the system's tools, in either order": (
        r"worker\.run: `job\.world\.(report_crashes|name_thread)\(.*\)` after",
    ),
    "one number does not depend on the other": (r"seed_everything: `torch\.set_num_threads\(1\)` after `seed = ",),
    "a Room without memory costs nothing; it is replaced": (
        r"room: `if slot in self\._slots` after `_room = _room or Room",
    ),
    "in the real world `forget` does nothing": (
        r"room: `memory\.forget\(\)` after `_room = Room",
        r"Packer\.room: `memory\.forget\(\)` is left",
    ),
    "`_take_back` itself takes what has come back out of `_out`": (
        r"reclaim: `self\._take_back\(\)` after `self\._out = ",
    ),
    "next() raises either way; of two deaths it names the other": (
        r"check_health: `if iterator\._failure.* after `for",
        r"^deaths\.check_health: `for worker_id, worker in .* after `if iterator\._pin_memory_thread",
    ),
    'they may be ready in any order: see the line "order" in worth.py': (
        r"Consumer\.add: .* after `self\._waiter\.add\(peer",
    ),
    "there is nothing to be taken in of nothing": (r"_wait: `if not ready` after `self\._take_in",),
    "the handshake counts no tasks": (r"_reset: `self\._workers_num_tasks = .* after `if not first_iter`",),
    "`put` notices no death": (r"_resume_workers: `self\._workers_status = .* after `for index_queue",),
    "only the feeder's name depends on it": (r"_forward: `queue, worker_id = self\._name` after",),
    "what is sent meanwhile does not look at the feeder": (r"_forward: `self\._feeder = None` after",),
    "each takes off something else": (r"_read_to_the_end: `if channel\.open` after",),
    "the queue does not depend on the device": (r"start_pin_thread: `data_queue = .* after `device = ",),
    "what stacks batches is asked for later, by the first of them": (
        r"worker\.run: `if slots` after `worker = Worker",
    ),
    "one may raise, the other fills in a default for itself": (r"__init__: `transport_of\(.* after `if num_workers",),
    "only Ctrl-C between: then next() raises, and _reset begins both anew": (
        r"_try_put_index: `self\._task_info\[.* after",
    ),
    "next() raises either way; a fork's copy with other words": (
        r"_next_data: `if self\._failure.* after `if self\._world",
    ),
    "neither depends on the other": (
        (
            r"^checkpoint\.randomness\.put_back: `if len\(states\['numpy'\]\).* after `torch\.default_generat"
            r"or"
        ),
        r"reducer_override: `number = .* after `shape = ",
        r"_take: `if info\.early` after `if task_id ==",
        r"Pickled\.__init__: `super\(\)\.__init__.* after `self\.dispatch_table",
        r"_resume_workers: `waiting_for\.discard.* after `self\._transports",
        r"pin_loop: `world\.name_thread.* after",
        r"_take_back: `del self\._lent\[slot\]` after",
        r"BaseIterator\.__init__: `if saved is not None and saved\.base_seed.* after `self\._persistent",
        r"^deaths\.fail_for_death: `tasks = .* after `worker = ",
        r"^deaths\.explain_death: (`text = .* after `cause = |`if code is not None and code >= 0` after `named = )",
        r"^loader\.DataLoader\.__init__: `if num_workers > 0 and prefetch_factor is None` after `self\.dataset = ",
        r"^parallel\.ParallelIterator\._reset: `self\._go_on\(loader, saved\)` after `self\._next_worker = ",
        r"^pickling\.Pickled\.__init__: `for storage, .* after `self\._arrays = ",
        r"^pickling\.Pickled\.__init__: `self\.firsts\.append\(first\)` after `self\.spans\.append",
        r"^pickling\.Pickled\._number: `self\._storages\.append\(storage\)` after `self\._used\.append",
        r"^pinning\.pin_loop: `torch\.set_num_threads\(1\)` after `if device_index is not None`",
        r"^iterator\.BaseIterator\._go_on: `saved\.put_back_random\(loader\)` after `self\._position\.begin",
        r"end_pin_thread: `thread = .* after `iterator\._pin_memory_thread_done_event",
        r"close_queues: `for index_queue in iterator\._index_queues` after `thread = ",
        r"start_workers: `iterator\._endings\.add.* after `transport = ",
        r"worker\.run: `events\.install.* after `events\.number_loaders_from",
        r"worker\.run: `events\.number_loaders_from.* after `slots = ",
        r"worker\.run: `transport = .* after `kind = ",
        r"worker\.run: `result_queue = .* after `end = ",
        r"worker\.run: `seed_everything\(job\)` after `if slots",
        r"seed_everything: `(random\.seed|torch\.manual_seed|numpy\.random\.seed)\(.* after `",
        r"begin_epoch: `self\.source\.begin\(\)` after `self\.fetcher = ",
        r"data_of: `worker_id = .* after `if self\.failure",
        r"Packer\.pack: `room = .* after `pickled = ",
        r"Packer\.pack: `for begin, .* after `stream = ",
        r"Packer\.pack: `stream = .* after `sizes = ",
        r"lay_out: `base, size = .* after `begins, end = ",
        r"Unpacker\.unpack: `stream = .* after `if is_new",
        r"Unpacker\._owner: `self\._memories\[slot\] = .* after `self\._fresh",
        r"Unpacker\.__init__: `self\._memories: .* after `world\.before_fork",
        r"^checkpoint\.draws\.Draws\.go_on: `if len\(begun_with\) > 1` after `self\.begun_with = ",
        r"^checkpoint\.saved\.fitted: `if saved\.num_workers != .* after `replicas = ",
        (
            r"^checkpoint\.source\.Source\.__init__: (`ours = .* after `place = |`if random and place` after `if"
            r" place\.get)"
        ),
        r"^checkpoint\.draws\.Draws\.go_on: `sampler_state, iter_state = .* after `drawn, ahead, in_flight = ",
        r"^checkpoint\.position\.Position\.state_dict: `main = .* after `ours: dict",
        (
            r"^checkpoint\.saved\.fitted: `if (saved\.ours\.get\('iterable', iterable\) != iterable` after `if"
            r" 'random' in saved\.ours|'random' in saved\.ours` after `if saved\.num_workers !="
            r" loader\.num_workers)`$"
        ),
        r"^checkpoint\.saved\.fitted: `if iterable` after `saved = replace\(saved, places=",
        r"^checkpoint\.saved\.before_an_epoch: `if state is None and is_stateful\(loader\.dataset\)` after `ours = ",
        (
            r"^checkpoint\.source\.Source\.__init__: `if saved\.get\('dataset_state'\) is not None` after `random"
            r" = ours\.get"
        ),
        r"^checkpoint\.source\.Source\.__init__: `place = saved\.get.* after `if saved\.get\('dataset_state'\)",
        r"^checkpoint\.source\.Source\.__init__: `if place\.get\('fetcher_ended'\)` after `self\.tells = ",
        r"^checkpoint\.source\.layout_of: `place = pickle\.loads.* after `random = ",
    ),
    "nobody waits before both are done: only Ctrl-C between the two could tell, and then the start fails": (
        r"Consumer\.add: `self\._channels\.append.* after `self\._waiter\.add\(reader",
    ),
    "only Ctrl-C between could tell, if another process keeps a dead worker's pipe open": (
        r"_read_to_the_end: `self\._waiter\.remove.* after `channel\.open",
    ),
    "only events need the names": (r"Producer\.close: `queue, worker_id = self\._name` after",),
    "unwatch() is seen by no event": (r"shut_down: `signals\.unwatch\(iterator\)` after `if all_ended",),
    "_look does nothing below the loader; while another thread shuts down, it may look in either order": (
        r"shut_down: `close_queues\(iterator\)` after `signals\.unwatch",
    ),
    "only join_thread looks at that, and main joins later": (
        r"tell_to_stop: `index_queue\.put.* after `index_queue\.cancel",
        r"tell_to_stop: `index_queue\.cancel.* after `index_queue\.close",
    ),
    "the one does not look at the other": (r"ParallelIterator\.__init__: `super.* after `self\._world = ",),
    "each puts it into a set of its own": (r"ParallelIterator\.__init__: `signals\.watch.* after `shut_down_at_exit",),
    "`put` does not look at it": (r"_resume_workers: `for index_queue.* after `waiting_for = ",),
    "the handler does not look at the queue": (
        r"worker\.run: `worker\.result_queue = .* after `job\.world\.on_interrupt",
    ),
    "only Ctrl-C between the two could tell: then next() raises": (
        r"worker_ended: .* after `iterator\._endings\.remove",
        r"^queues\.Consumer\._read_to_the_end: `self\._waiter\.remove\(channel\.peer\)` after",
    ),
    "begin() does not look at the length": (r"_go_on: `self\._position\.begin\(saved\.begin\)` after",),
    "the check sets no attribute": (r"DataLoader\.__init__: `self\._initialized = True` after",),
    "each puts the iterator, or its position, into an attribute that the other does not look at": (
        r"DataLoader\.__iter__: `if self\.persistent_workers.* after `self\._position",
    ),
    "the words are made, and not needed": (
        r"check_worker_number_rationality: `if not .* after `if cores is None",
        r"^iterator\.pin_device: `if found is not None .* after `why = ",
    ),
    "`partial` calls nothing": (r"SerialIterator\.__init__: `if self\._timeout.* after `make = ",),
    "only join_thread looks at that, and nobody calls it for an index queue": (
        r"close_queues: `index_queue\.cancel_join_thread\(\)` after",
        r"close_queues: `index_queue\.cancel_join_thread\(\)` is left",
    ),
    "what the position is made of only looks: it draws nothing, and iterates over nothing": (
        r"DataLoader\.state_dict: `if self\._loaded.* after `position = ",
    ),
    "the iterator has failed, and nothing is done about an end any more": (
        r"^deaths\.worker_ended: `iterator\._endings\.remove.* after `if status",
    ),
    "never are both true: only the first epoch begins from a state": (
        r"^parallel\.ParallelIterator\._reset: `if not first_iter` after `if saved is not None",
    ),
    "nobody asks how many tasks a worker has whose stream has ended": (
        (
            r"^parallel\.ParallelIterator\._receive: `if isinstance\(result\.data, StreamEnd\)` after"
            r" `self\._workers_num"
        ),
    ),
    "it only tells, and nothing else is told between the two": (
        r"^queues\.Producer\._packed: `self\._emit_send_failed\(error, message\.task_id\)` after `try`",
    ),
    "neither looks at the other, and Ctrl-C between the two does no other harm than just before both": (
        r"^serial\.SerialIterator\._next_data: `self\._source\.failed\.append.* after `self\._position\.passed",
        r"^checkpoint\.position\.Position\.passed: `if place` after `self\.steps \+= yielded`",
    ),
    "only join_thread looks at that, and it comes later": (
        r"worker\.run: `if job\.done\.is_set\(\) or .*` after `result_queue\.close",
    ),
    "an exit just before the add misses it in either order": (r"shut_down_at_exit: `_at_exit\.add\(iterator\)` after",),
    "the thread does not look at it, and if it cannot start nobody gets the iterator": (
        r"start_pin_thread: `thread\.start\(\)` after",
    ),
    "only Ctrl-C between could tell: a slot may be lost, as it is if Ctrl-C comes just before": (
        (
            r"Unpacker\._take_back: `(if isinstance\(back, Loan\)` after `self\._out\.remove"
            r"|self\._out\.remove\(slot\)` after)"
        ),
    ),
    "neither looks at the other, and Ctrl-C between the two does no other harm than just after both": (
        r"^checkpoint\.draws\.Draws\._draw: `if len\(self\.begun_with\) == 1` after `self\.ended = True`",
        r"^checkpoint\.position\.Position\.passed: `self\.steps \+= yielded` after `self\._passed\.append",
    ),
    "neither looks at what the other does; if one fails, nobody gets the iterator": (
        r"^checkpoint\.draws\.Draws\.go_on: `begun_with = .* after `sampler_state, iter_state = ",
        r"^checkpoint\.draws\.Draws\.go_on: `at_the_end = .* after `if ours\.get\('epoch'\)",
        r"^checkpoint\.draws\.Draws\.go_on: `if self\.batches and iter_state is not None` after `at_the_end = ",
        (
            r"^checkpoint\.draws\.Draws\.go_on: `if ours\.get\('replicas', replicas\) != replicas` after"
            r" `shuffled_here = "
        ),
        r"^checkpoint\.draws\.Draws\.go_on: `if other` after `again = ",
    ),
    "a sampler that has been asked is not asked for its rank again": (
        r"^checkpoint\.draws\.Draws\.go_on: `if ours\.get\('sampler_ended'\)` after `other = ",
    ),
    "a RandomSampler, minidl's or torch's, draws nothing before it is asked for a key": (
        r"^checkpoint\.draws\.shuffled_from: `sampler\.generator\.set_state\(.* after `keys = ",
    ),
    "the epoch does not begin, and nobody asks for its position": (
        r"^checkpoint\.position\.Position\.heard: `if lost` after `self\.places",
    ),
    # It is the same.
    "with workers the task has arrived; without, nobody asks for the number of a worker": (
        r"Position\.passed: -?1 in place of 0",
    ),
    "torch's way (what is left of these): our stacking makes new shared memory, as torch's own does": (
        r"worker\.run: `slots` is always True",
    ),
    "the lines before refuse a batch_sampler together with drop_last": (
        r"check_sampling_options: .* without `batch_sampler is None`",
    ),
    "without workers a state has one place; and to repeat -1 batches is to repeat none": (
        r"SerialIterator\.__init__: -1 in place of 0",
    ),
    "going on does not look at it": (r"SerialIterator\.__init__: `self\._position\.source = .* after",),
    "it returns None anyway": (r"Handles\.(room|reclaim): it returns at once",),
    "only slower: the last batch lives until the next one is sent, and its slot may get new memory": (
        r"_feed: `del message` is left",
    ),
    "how many shapes are remembered: only slower": (r"_strides: \d+ in place of 1024",),
    "torch's transport has no slots: nobody looks": (r"Handles\.grant: True in place of",),
    "an assertion states what is so": (
        r": `assert .*` is left out",
        r": `assert .*` after `if room\.slot in",
    ),
    "only slower, from 16,384 tasks per worker on": (r"Unpacker\.__init__: 14 in place of 15",),
    "NO_SLOT has no memory, nor comes back": (
        r"Unpacker\.grant: (`slot == NO_SLOT` is always False|True in place of False)",
        r"Unpacker\.grant: (`if slot == NO_SLOT` after `self\._out\.add|`return \(slot, False\)` is left)",
        r"Unpacker\.unpack: `slot != NO_SLOT` is always True",
    ),
    "main has everything of a worker that it stops alone: its StreamEnd came last": (
        r"worker\.run: `job\.done\.is_set\(\) or .*` is always True",
    ),
    "the keys of a stream's tasks are all the same: a longer state": (
        r"_next_keys: `not self\._iterable` is always True",
    ),
    "only slower: the loop finds what has arrived": (
        r"(_receive: `return result\.task_id` is left|_next_task: `task_id is not None .*` is always False)",
        r"^parallel\.ParallelIterator\._next_task: `return task_id` is left out",
    ),
    "more than half of a storage is sent whole, from 0": (r"reducer_override: -1 in place of 0",),
    "`goes_on` implies it: only the type checker cares": (
        r"SerialIterator\.__init__: .* and goes_on` without `saved is not None`",
    ),
    "only whether it is there is asked": (r"SerialIterator\._next_data: `self\._source\.failed\.append.*` twice",),
    "it is a set": (
        r"joined: `iterator\._joined\.add\(worker_id\)` twice",
        r"shut_down_at_exit: `_at_exit\.add\(iterator\)` twice",
        r"Unpacker\.(grant: `self\._out|_take_back: `self\._fresh)\.add\(slot\)` twice",
    ),
    "a process that was never started has no exit code either": (r"use_force: .* without `worker\.pid`",),
    "the waiter does not name a pipe that was removed at its end": (r"_read_to_the_end: .* without `channel\.open`",),
    "nothing else of the new epoch was sent yet, and a Died has raised": (
        r"_resume_workers: .* without `isinstance\(message, Resumed\)`",
    ),
    "the loader gives none; tests do, to fail instead of hanging": (r"join_thread: None in place of timeout",),
    "its memory cannot be had either way: the same error": (r"_is_plain: .* without `tensor\._is_zerotensor",),
    "only the largest counts": (r"Packer\.__init__: (-1|1) in place of 0",),
    "what lies in the slot is copied once more, and sent": (r"pack: `not taken and needed .* without `not taken`",),
    "only more system calls, or one copy more": (
        r"_write: `sum\(.* < ONE_WRITE` is always",
        r"^queues\.Producer\._write: `sum\(map\(len, pieces\)\) < ONE_WRITE` with LtE",
    ),
    "a wait for less than no time looks once, as well": (
        (
            r"(Consumer\.(get|_wait|_read_to_the_end)|\w+_workers|close_queues|signals\._look|_unnoticed): -1.*"
            r" in place of 0"
        ),
    ),
    "nothing lies in an empty range, and at address 0 only what is empty": (r"lay_out: -?1 in place of 0",),
    "the feeder ends at the first": (r"Producer\.close: `self\._buffer\.put\(LAST\)` twice",),
    "the assertion states what its callers see to": (
        r"_try_put_index: (`assert .* after|.*_tasks_outstanding < max_tasks)",
    ),
    "only slower, by a look-up in a cache: the strides say it alone": (
        r"^pickling\._is_row_major: .* without `1 not in shape and 0 not in shape`$",
    ),
    "close_queues cancels again, and nobody joins before: one event fewer": (
        r"tell_to_stop: `index_queue\.cancel_join_thread\(\)` is left",
    ),
    "the Result around it says which worker; nobody reads this but exercise 6, which compares": (
        r"worker_id \+ 1 in `StreamEnd\(worker_id\)",
    ),
    "getstate() changes nothing, and the view shows what is there later": (
        r"pythons_memory: `found = .* after `words = ",
    ),
    "as a seed any number is as good (in the pair that is looked for, test_memory_is_found_where_it_was sees it)": (
        r"gauss_memory: [02] in place of 1",
    ),
    "where a change is looked for, a word more or less is as good (elsewhere that test sees it)": (
        r"torchs_memory: [35] in place of 4",
    ),
    "`set_` gives it another storage: one element is made, and freed": (r"^pickling\.Tensors\.part: 1 in place of 0",),
    "no message is empty: of one whose length has come, and nothing else, there is nothing to take": (
        r"^queues\.Channel\.read: `len\(self\.gathered\) >= LENGTH\.size` with Gt",
    ),
    "the end of the process, for which it looks, is ready: no wait takes time": (
        r"^queues\.Consumer\._read_to_the_end: 1 in place of 0",
    ),
    "main has its memory mapped until new memory comes, either way": (
        r"Packer\.room: `del self\._slots\[slot\]` is left",
    ),
    "only slower: when a slot that is far too large is replaced": (
        r"Packer\.room: `len\(self\._recent\) == RECENT` is always True",
        r"Packer\.room: `memory\.bytes\.nbytes > TOO_LARGE \* most` with GtE",
    ),
    "only slower: a copy to where it is already": (
        r"Packer\.pack: (`address != base \+ begin` is always True|`base \+ begin` with Sub)",
    ),
    "`grant` takes back what has come back before it grants anything": (
        r"Unpacker\.reclaim: `self\._take_back\(\)` is left",
    ),
    "setstate() takes a state of version 2, too, and makes its negative words positive: there are none": (
        r"^checkpoint\.randomness\.put_back: 2 in place of 3$",
    ),
    "of one item, the last is the first": (r"^checkpoint\.randomness\.put_back: -1 in place of 0$",),
    "to repeat -1 batches is to repeat none, and after a whole epoch nothing else is told of them": (
        r"^checkpoint\.saved\.next_epoch: -1 in place of 0 \(2\)",
    ),
    "without a source the epoch could not be begun, and has a failure": (
        r"^checkpoint\.telling\.Telling\.put: .* without `source is not None`",
    ),
    "to draw -1 tasks ahead is to draw none (the other -1 falls to a test of keys that are drawn at once)": (
        r"^checkpoint\.draws\.Draws\.go_on: -1 in place of 0$",
    ),
    "the first two keys are drawn together, unless there is one: then the second draws nothing": (
        r"^checkpoint\.draws\.shuffled_from: 2 in place of 1$",
    ),
    "of a state before any epoch only torchdata reads the base seed, and any number is as good": (
        r"^checkpoint\.position\.Position\.before_the_first: -?1 in place of 0 \(2\)$",
    ),
    "without workers nobody asks for the number of a worker": (r"^checkpoint\.saved\.saved_of: [02] in place of 1$",),
    "a warning of what took a second to the nanosecond": (r"^checkpoint\.source\.winding: `took > SLOW` with GtE$",),
    "only slower: of a map-style dataset nobody asks for it": (
        r"^checkpoint\.source\.Source\.__init__: `isinstance\(dataset, IterableDataset\)` is always True$",
    ),
    "if `begin` cannot set it, main knows no part, and is told them all anyway": (
        r"^checkpoint\.source\.Source\.__init__: True in place of False",
    ),
    # Only elsewhere.
    "a precaution against builds of numpy and torch that lay memory out otherwise: none of those tried does": (
        r"(gauss|torchs)_memory: ",
    ),
    "only with an accelerator": (
        r"^accelerator\.|set_device_index",
        r"reducer_override: .* without `thing\.device\.type == 'cpu'`",
    ),
}
