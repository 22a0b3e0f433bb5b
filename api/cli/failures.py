"""How a command that cannot go on says so: one line, and an exit code."""

from __future__ import annotations

NO, WRONG_USAGE = 1, 2
"""Exit codes: the answer is no, or it could not be had; wrong usage or settings."""


class CommandFailed(Exception):
    """The message is one line that says what to do next."""

    def __init__(self, message: str, exit_code: int = NO) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def explain(error: BaseException) -> tuple[str, int]:
    """Return the line and the exit code for whatever ended a command."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, CommandFailed):
        return _line(error), error.exit_code
    line, exit_code = _explain_known(error)
    return " ".join(line.split()), exit_code


def _explain_known(error: BaseException) -> tuple[str, int]:
    # imported only now: no command that succeeds pays for it
    from domain.event_store import StoreError
    from infra.database import DatabaseRefused, DatabaseUnavailable
    from infra.keys import KeysError
    from infra.log_identity import WrongLog
    from infra.migrations import MigrationError
    from infra.postgres_cluster import EmbeddedPostgresError
    from infra.settings import SettingsError
    from infra.user_code import LoadError
    from projections.rebuild.jobs import RebuildLost, RebuildRunning
    from projections.versions import ProjectionMismatch

    match error:
        case SettingsError() | KeysError() | LoadError():
            return str(error), WRONG_USAGE
        case DatabaseUnavailable():
            return f"{error}; check REJOINDER_DATABASE_URL and that its server runs", NO
        case StoreError():
            return f"{error}; check REJOINDER_EVENT_STORE and REJOINDER_DATABASE_URL, and that their servers run", NO
        case DatabaseRefused() | EmbeddedPostgresError() | MigrationError() | WrongLog() | OSError():
            return str(error), NO
        case ProjectionMismatch() | RebuildRunning() | RebuildLost():
            return str(error), NO
        case _:
            return f"unexpected {type(error).__name__}: {error} (REJOINDER_LOG_LEVEL=DEBUG shows where)", NO


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
