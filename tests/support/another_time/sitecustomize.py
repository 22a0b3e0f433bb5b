"""Another clock and no price list at all: with this directory on PYTHONPATH, it is ten years later."""

from __future__ import annotations

import sys
import time

YEARS_S = 10 * 365 * 86_400
now = time.time
vars(time)["time"] = lambda: now() + YEARS_S
sys.modules["litellm"] = None  # type: ignore[assignment]  # whoever imports it fails: nobody may ask for a price
