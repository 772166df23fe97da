"""Exercise 13: wrong answers."""

from tests.exercises.wrong.edits import Wrong

JOIN = "worker.join(patience)"
IF_ENDED = "if not worker.is_alive():"
WRONG = {
    "only_ctrl_c": Wrong("the steps of a shutdown", ("except BaseException:", "except KeyboardInterrupt:")),
    "ctrl_c": Wrong(
        "Ctrl-C leaves workers",
        shut_down="""
            if iterator._shutdown or iterator._world.pid() != iterator._owner_pid:
                return
            iterator._shutdown = True
            stop_pin_thread(iterator)
            tell_workers_to_stop(iterator)
            wait_for_workers(iterator)
            use_force(iterator)
            close_queues(iterator)
            signals.unwatch(iterator)
        """,
    ),
    "each": Wrong("a patience for each worker", (JOIN, "worker.join(PATIENCE)")),
    "inherited": Wrong("another process's workers", (" or iterator._world.pid() != iterator._owner_pid", "")),
    "no_bound": Wrong("a join without a bound", (JOIN, "worker.join()")),
    "no_close": Wrong("the queues are left open", ("close_queues(iterator)", "pass")),
    "no_done_event": Wrong("no done event", ("iterator._workers_done_event.set()", "pass")),
    "no_force": Wrong("something is left", ("wait_for_workers(iterator)", "pass"), ("use_force(iterator)", "pass")),
    "no_sentinel": Wrong("done event without the sentinel", ("tell_to_stop(iterator, worker_id)", "pass")),
    "no_unwatch": Wrong("the queues are left open", ("signals.unwatch(iterator)", "pass")),
    "no_wait": Wrong("does not wait", (JOIN, "pass"), (IF_ENDED, f"{IF_ENDED}\n            worker.join()")),
    "second_call": Wrong("a second call fails", ("if iterator._shutdown or", "if")),
    "workers_first": Wrong(
        "workers before the pin thread",
        shut_down="""
            if iterator._shutdown or iterator._world.pid() != iterator._owner_pid:
                return
            iterator._shutdown = True
            try:
                tell_workers_to_stop(iterator)
                wait_for_workers(iterator)
                stop_pin_thread(iterator)
            finally:
                end_pin_thread(iterator)
                use_force(iterator)
                close_queues(iterator)
                signals.unwatch(iterator)
        """,
    ),
    "counts_from_step_1": Wrong(
        "the steps of a shutdown",
        (
            "iterator._shutdown = True",
            "iterator._shutdown = True\n    iterator._begin = iterator._world.now()",
        ),
        (
            "deadline = iterator._world.now() + PATIENCE",
            'deadline = getattr(iterator, "_begin", iterator._world.now()) + PATIENCE',
        ),
    ),
    "goes_on_watching": Wrong(
        "the steps of a shutdown",
        ("        close_queues(iterator)\n        signals.unwatch(iterator)", "        close_queues(iterator)"),
        ("            use_force(iterator)", "            use_force(iterator)\n            signals.unwatch(iterator)"),
    ),
    "tells_the_active": Wrong(
        "the steps of a shutdown",
        (
            "        tell_to_stop(iterator, worker_id)",
            "        if iterator._workers_status[worker_id].name == 'ACTIVE':\n"
            "            tell_to_stop(iterator, worker_id)",
        ),
    ),
}
