"""Whether tests take their long forms: more of the same, and the product's own times (``REJOINDER_LONG=1``)."""

from __future__ import annotations

import os

LONG = os.environ.get("REJOINDER_LONG", "") not in ("", "0")
