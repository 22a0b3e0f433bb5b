"""The read models that Rejoinder comes with."""

from __future__ import annotations

from projections.agenda import AGENDA

PROJECTIONS = (AGENDA,)
