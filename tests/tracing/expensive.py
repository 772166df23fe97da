"""A module whose import takes long, as one that loads a large library does. See test_verdicts.UnpicklesSlowly."""

from __future__ import annotations

import time

time.sleep(0.4)
