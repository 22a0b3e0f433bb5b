"""The fixtures that all tests share."""

from __future__ import annotations

from tests.support.forked import forker
from tests.support.model_fixtures import litellm_model, model_server
from tests.support.postgres import database_url, empty_database_url, postgres_server, template_database
from tests.support.real_model import real_model_server
from tests.support.system import system

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
