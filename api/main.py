"""The program `rejoinder`: its commands, how it logs, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from api.cli import (
    chat,
    config,
    events,
    export,
    import_,
    keys,
    pausing,
    projections,
    rebuild,
    replay,
    retry,
    serve,
    trace,
    verify,
    what_if,
)
from api.cli.failures import WRONG_USAGE, explain
from api.cli.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

INTERRUPTED = 130

COMMANDS: dict[str, Callable[..., Job | None]] = {
    "serve": serve.serve,
    "chat": chat.chat,
    "events": events.events,
    "replay": replay.replay,
    "diff": replay.diff,
    "trace": trace.trace,
    "what-if": what_if.what_if,
    "projections": projections.projections,
    "rebuild": rebuild.rebuild,
    "verify": verify.verify,
    "pause": pausing.pause,
    "resume": pausing.resume,
    "retry": retry.retry,
    "export": export.export,
    "import": import_.import_file,
    "config": config.config,
}

app = typer.Typer(name="rejoinder", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
for name, command in COMMANDS.items():
    paragraphs = (command.__doc__ or "").split("\n\n")  # a line each: the terminal's width says where they break
    app.command(name, help="\n\n".join(" ".join(text.split()) for text in paragraphs))(command)
app.add_typer(keys.commands, name="keys")


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal may not know every character
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit code; what goes wrong is one line on standard error."""
    try:
        asked = app(list(arguments), prog_name="rejoinder", standalone_mode=False)
        exit_code = _perform(asked) if isinstance(asked, Job) else int(asked or 0)
        sys.stdout.flush()
        return exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # who reads has enough, as in `rejoinder events … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if (usage := _usage(error)) is not None:
            line, exit_code = usage, WRONG_USAGE
        else:
            logger.debug("the command failed", exc_info=error, extra={"action": "command_failed"})
            line, exit_code = explain(error)
        print(f"rejoinder: {line}", file=sys.stderr)
        return exit_code


@app.callback(invoke_without_command=True)
def rejoinder(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> int:
    """A backend for conversations between people and AI agents, in which the log is the truth."""
    if show_version:
        print(f"rejoinder {_version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(WRONG_USAGE)
    return 0


def _perform(job: Job) -> int:
    from infra.log_setup import configure_logging
    from infra.settings import load_settings

    settings = load_settings(**job.overrides)
    quiet = not job.serves and settings.log_level == "INFO"
    configure_logging(settings.log_format, "WARNING" if quiet else settings.log_level)
    return asyncio.run(job.run(settings))


def _usage(error: Exception) -> str | None:
    """Return what typer has to say of wrong usage, None for any other error."""
    if not isinstance(error, typer.TyperException):
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "rejoinder"
    return f"{' '.join(error.format_message().split()).rstrip('.')}; try `{command} --help`"


def _version() -> str:
    try:
        return version("rejoinder")
    except PackageNotFoundError:
        return "(not installed: run from its source)"
