"""The names of read models on a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.failures import WRONG_USAGE, CommandFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projections.projection import Projection

Names = Annotated[list[str], typer.Argument(metavar="NAME", show_default=False, help="As `projections` lists them.")]


def named(projections: Sequence[Projection], names: Sequence[str]) -> list[Projection]:
    """Return the projections of these names, each once; raises `CommandFailed` for one that there is not."""
    known = {one.name: one for one in projections}
    if unknown := [name for name in names if name not in known]:
        raise CommandFailed(f"there is no read model {unknown[0]!r}; there are: {', '.join(known)}", WRONG_USAGE)
    return [known[name] for name in dict.fromkeys(names)]
