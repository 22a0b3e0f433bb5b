"""The fixtures that all tests share."""

from __future__ import annotations

import signal

from tests.support.forked import forker
from tests.support.model_fixtures import litellm_model, model_server
from tests.support.postgres import database_url, empty_database_url, postgres_server, template_database
from tests.support.real_model import real_model_server
from tests.support.system import system

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: programs that are run would ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
