"""How long tests wait, and how much later than is promised something may come on their machine."""

from __future__ import annotations

SLACK_S = 8.0
"""Promises are made for a machine that has time: one that many share is late by itself, and cannot say when.

What is kept after so long is kept: each test that allows it is about something that otherwise would not come at all, or
only with what is much slower.
"""

PATIENCE_S = 120.0
"""So long is waited for what has to come, however long it takes.

The first call of a process imports LiteLLM, which takes a minute of a machine that many share.
"""
