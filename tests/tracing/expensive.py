"""A module whose import takes long, as one that loads a large library does. See report_loads.expensive_import()."""

from __future__ import annotations

import time

time.sleep(0.4)
