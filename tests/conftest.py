"""The fixtures that all tests share, and how they try generated examples."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

from tests.support.forked import forker
from tests.support.model_fixtures import litellm_model, model_server
from tests.support.postgres import database_url, empty_database_url, postgres_server, template_database
from tests.support.real_model import real_model_server
from tests.support.system import system

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: programs that are run would ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time, on a machine of any speed; who asks for a number of runs gets others each time.
settings.register_profile(
    "rejoinder",
    deadline=None,
    derandomize="REJOINDER_PROPERTY_RUNS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rejoinder")

__all__ = [
    "database_url",
    "empty_database_url",
    "forker",
    "litellm_model",
    "model_server",
    "postgres_server",
    "real_model_server",
    "system",
    "template_database",
]
