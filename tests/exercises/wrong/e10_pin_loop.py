"""Exercise 10: wrong answers."""

from tests.exercises.wrong.edits import Wrong

UNPINNABLE = "(ExceptionWrapper, StreamEnd)"
PIN = "pin_batch(result.data, device, epoch_id, task_id, worker_id)"
WRONG = {
    "every_message": Wrong(
        "takes every message for a batch",
        ("if isinstance(message, Result)", "if not isinstance(message, Failed)"),
    ),
    "forgets_the_copy": Wrong(
        "does not pin",
        (f"return replace(result, data={PIN})", f"{PIN}\n        return result"),
    ),
    "gives_up": Wrong(
        "ends too early",
        (
            "        del message",
            "        if isinstance(message, Result) and isinstance(message.data, ExceptionWrapper):\n            break",
        ),
    ),
    "loses_it": Wrong("loses a message", ("message = Failed(epoch_id, error)", "print(error)\n            continue")),
    "no_task": Wrong(
        "the error has no task",
        ("return replace(result, data=ExceptionWrapper(where=f", "return Failed(epoch_id, error or repr(f"),
    ),
    "no_try": Wrong(
        "an exception kills the thread",
        pinned="""
            epoch_id, task_id, worker_id = result.epoch_id, result.task_id, result.worker_id
            batch = pin_batch(result.data, device, epoch_id, task_id, worker_id)
            return Result(epoch_id, task_id, worker_id, batch)
        """,
    ),
    "only_stopped": Wrong(
        "an exception kills the thread", ("except Exception as error:  # unpickling", "except Stopped as error:  #")
    ),
    "pins_errors": Wrong("pins a wrapped error", (UNPINNABLE, "StreamEnd")),
    "pins_the_end": Wrong("pins the end of a stream", (UNPINNABLE, "ExceptionWrapper")),
    "swallows_stopped": Wrong("goes on after the flag is set", ("        except Stopped:\n            break\n", "")),
    "empty_wrapper": Wrong(
        "an empty ExceptionWrapper",
        pinned="""
            epoch_id, task_id, worker_id = result.epoch_id, result.task_id, result.worker_id
            batch = None
            try:
                batch = pin_batch(result.data, device, epoch_id, task_id, worker_id)
            except Exception:
                pass
            if batch is None:
                batch = ExceptionWrapper(where="in the pin thread")
            return Result(epoch_id, task_id, worker_id, batch)
        """,
    ),
    "ends_after_an_error": Wrong(
        "a message is not passed on",
        ("message = Failed(epoch_id, error)", "data_queue.put(Failed(epoch_id, error))\n            break"),
    ),
    "epoch_of_the_thread": Wrong(
        "a message is not passed on",
        (
            "        data_queue.put(message)",
            "        if isinstance(message, Result) and isinstance(message.data, ExceptionWrapper):\n"
            "            message = Result(epoch_id, message.task_id, message.worker_id, message.data)\n"
            "        data_queue.put(message)",
        ),
    ),
    "only_one_error": Wrong(
        "a message is not passed on",
        ("    except Exception as error:\n        emit(", "    except ValueError as error:\n        emit("),
    ),
    "gives_up_pinning": Wrong(
        "does not pin",
        ("while True:", "can_pin = True\n    while True:"),
        (f"not isinstance(message.data, {UNPINNABLE}):", f"can_pin and not isinstance(message.data, {UNPINNABLE}):"),
        (
            "message = pinned(message, device)",
            "message = pinned(message, device)\n            can_pin = not isinstance(message.data, ExceptionWrapper)",
        ),
    ),
}
