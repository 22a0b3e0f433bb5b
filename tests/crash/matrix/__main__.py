"""The crash matrix by hand: ``python -m tests.crash.matrix --full`` kills every scenario at every boundary.

Without ``--full`` it runs the short form that the test suite runs too; ``--help`` lists what can be chosen.
It exits with 1 if any run left behind what a run without kills could not have.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from tests.crash.matrix.plans import SHORT, chosen_form, full_form, short_form
from tests.crash.matrix.rig import assembled
from tests.crash.matrix.scenarios import SCENARIOS
from tests.crash.matrix.stores import POSTGRES
from tests.support.eventstoredb.process import DoubleProcess
from tests.support.postgres import own_postgres
from tests.support.program import data_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.matrix.plans import Report
    from tests.crash.matrix.run import Verdict


def main(
    full: Annotated[bool, typer.Option("--full", help="Kill at every boundary, and many successors too.")] = False,
    store: Annotated[str, typer.Option(help="postgres, or eventstoredb: the double of it.")] = POSTGRES,
    scenario: Annotated[list[str] | None, typer.Option(help="Only these scenarios.")] = None,
    kill: Annotated[list[str] | None, typer.Option(help="Where the first process, the second, … is killed.")] = None,
    seed: Annotated[int, typer.Option(help="Chooses what is not exhaustive.")] = 1,
    kills: Annotated[int, typer.Option(help="How many kills the short form has.")] = SHORT,
    minutes: Annotated[float, typer.Option(help="Begin no more runs of the full form after this.")] = 120,
    verbose: Annotated[bool, typer.Option("--verbose", help="Tell of every run.")] = False,
) -> None:
    """Kill processes at the boundaries of scenarios, and judge the logs."""
    chosen = [SCENARIOS[name] for name in scenario or SCENARIOS]

    begun, told = monotonic(), count(1)

    def tell(verdict: Verdict) -> None:
        if verbose or verdict.wrong:
            print(verdict, flush=True)
        if (runs := next(told)) % 100 == 0:
            print(f"{runs} runs after {monotonic() - begun:.0f} s", flush=True)

    async def run() -> Report:
        with servers(store) as addresses:
            async with assembled(*addresses) as rig:
                if kill:
                    return await chosen_form(rig, chosen, tell, kills=tuple(kill))
                if full:
                    return await full_form(rig, chosen, tell, seed=seed, minutes=minutes)
                return await short_form(rig, chosen, tell, seed=seed, kills=kills)

    report = asyncio.run(run())
    print(f"{report}, seed {seed}")
    sys.exit(1 if report.violations else 0)


@contextmanager
def servers(store: str) -> Iterator[tuple[str, str]]:
    """Run a PostgreSQL server, and EventStoreDB's double if it is asked for; yield their connection strings."""
    with data_directory() as home, own_postgres(home) as server:
        if store == POSTGRES:
            yield server.dsn, ""
        else:
            with DoubleProcess(home / "log") as double:
                yield server.dsn, double.uri


if __name__ == "__main__":
    typer.run(main)
