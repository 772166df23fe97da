"""What Python runs at the start of each child of `tracing run`, which puts this folder first on PYTHONPATH: it waits
for a module that loaders come from, and imports `tracing`, to record them, only once that is imported.

Every Python process among the children pays for this file, whatever it runs: it imports nothing that is not there yet.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))  # the folder that `tracing` is in
HOME = "torch.utils.data.dataloader"  # the module that torch's DataLoader is defined in


class AfterImport:
    """In front of sys.meta_path: waits for the first import of one of the modules `names`, and calls `then` once that
    module has run. The module is found where it would be found anyway."""

    def __init__(self, names: "tuple[str, ...]", then: "Any") -> None:
        self.names, self.then = names, then

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in self.names or self not in sys.meta_path:
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec: Any = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: "Any") -> None:
                execute(module)
                self.then()

            spec.loader.exec_module = exec_module
        return spec


def record() -> None:
    """Record what this process loads. Whatever goes wrong with that, its program runs on."""
    try:
        if PACKAGES not in sys.path:
            sys.path.append(PACKAGES)  # behind all that the program imports itself
        from importlib import import_module

        import_module("tracing.recording.record").record_this_child()
    except Exception as error:
        print(f"tracing: process {os.getpid()} is not recorded: {error!r}", file=sys.stderr)


if __name__ == "sitecustomize":  # imported by Python as it starts, not by one of us
    sys.path.remove(HERE)  # where Python has found this file
    sys.meta_path.insert(0, AfterImport((HOME, "minidl.events"), record))
    del sys.modules[__name__]
    # The one that this one hides. If there is none, its ImportError ends this one, and Python goes on as without any.
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
