"""The fixtures that all tests share."""

from __future__ import annotations

from tests.support.postgres import database_url, empty_database_url, postgres_server, template_database

__all__ = ["database_url", "empty_database_url", "postgres_server", "template_database"]
