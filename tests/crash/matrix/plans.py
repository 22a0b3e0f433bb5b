"""What is run: every scenario without a kill, to find its boundaries, then with kills at all or at some of them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import cycle
from random import Random
from time import monotonic
from typing import TYPE_CHECKING

from tests.crash.matrix.run import Plan, Shape, Verdict, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.crash.matrix.rig import Rig
    from tests.crash.matrix.scenario import Scenario

    Tell = Callable[[Verdict], None]

SHAPES: tuple[Shape, ...] = ("whole", "behind")
SHORT = 70
"""So many kills has the short form, …"""
LANES = 4
"""… and so many runs go on side by side: most of one is waiting."""

PATIENT_EVERY = 100
"""In the first runs of each hundred the leases of the dead are waited for, in all lanes at once."""


@dataclass
class Report:
    """What was run and what came of it."""

    verdicts: list[Verdict] = field(default_factory=list)
    not_run: int = 0
    seconds: float = 0.0

    @property
    def violations(self) -> list[Verdict]:
        """The runs in which something was wrong."""
        return [verdict for verdict in self.verdicts if verdict.wrong]

    @property
    def kills(self) -> int:
        """How many processes were killed at their boundary."""
        return sum(verdict.deaths for verdict in self.verdicts)

    def __str__(self) -> str:
        planned = [verdict for verdict in self.verdicts if verdict.plan.kills]
        missed = sum(len(verdict.plan.kills) - verdict.deaths for verdict in planned)
        scenarios = len({verdict.plan.scenario.name for verdict in self.verdicts})
        waited = max((one for verdict in self.verdicts for one in verdict.recoveries), default=0.0)
        again = sum(verdict.sent_again for verdict in self.verdicts)
        each = self.seconds / len(self.verdicts) if self.verdicts else 0.0
        return (
            f"{len(self.verdicts)} runs of {scenarios} scenarios ({self.not_run} more were planned), "
            f"{self.kills} kills, {missed} boundaries not reached, "
            f"{again} times a command was sent again, {len(self.violations)} runs with violations, "
            f"{self.seconds:.0f} s ({each:.2f} s a run), "
            f"longest take-over {waited:.1f} s where leases were waited for"
        )


async def short_form(rig: Rig, scenarios: Iterable[Scenario], tell: Tell, *, seed: int, kills: int) -> Report:
    """Run each scenario without a kill, in one shape, then with some: each kind of boundary is met too."""
    clean = [Plan(scenario, SHAPES[number % 2]) for number, scenario in enumerate(scenarios, seed)]
    return await _matrix(rig, clean, tell, lambda clean: some_kills(clean, Random(seed), kills))


async def full_form(rig: Rig, scenarios: Iterable[Scenario], tell: Tell, *, seed: int, minutes: float) -> Report:
    """Run each scenario without a kill, then with one at every boundary, and with many second ones, in random order.

    What has not begun after so many minutes is left out.
    """
    clean = _in_all_shapes(scenarios)
    return await _matrix(rig, clean, tell, lambda clean: all_kills(clean, Random(seed)), seconds=60 * minutes)


async def chosen_form(rig: Rig, scenarios: Iterable[Scenario], tell: Tell, *, kills: tuple[str, ...]) -> Report:
    """Run each scenario without a kill, then with these."""
    clean = _in_all_shapes(scenarios)
    return await _matrix(rig, clean, tell, lambda clean: [_killed_at(verdict, *kills) for verdict in clean])


def _in_all_shapes(scenarios: Iterable[Scenario]) -> list[Plan]:
    return [Plan(scenario, shape) for scenario in scenarios for shape in SHAPES]


async def _matrix(
    rig: Rig,
    clean: list[Plan],
    tell: Tell,
    planned: Callable[[Sequence[Verdict]], list[Plan]],
    *,
    seconds: float = math.inf,
) -> Report:
    began = monotonic()
    verdicts = await _run_all(rig, clean, tell, math.inf)
    plans = planned([verdict for verdict in verdicts if not verdict.wrong])
    plans = [replace(plan, patient=number % PATIENT_EVERY < LANES) for number, plan in enumerate(plans)]
    killed = await _run_all(rig, plans, tell, began + seconds)
    return Report([*verdicts, *killed], len(plans) - len(killed), monotonic() - began)


async def _run_all(rig: Rig, plans: Iterable[Plan], tell: Tell, until: float) -> list[Verdict]:
    """Run plans side by side, telling of each when it is over; begin none any more after a time."""
    waiting, verdicts = iter(plans), list[Verdict]()

    async def lane() -> None:
        while monotonic() < until and (plan := next(waiting, None)):
            verdicts.append(await run(rig, plan))
            tell(verdicts[-1])

    await asyncio.gather(*(lane() for _ in range(LANES)))
    return verdicts


def all_kills(clean: Iterable[Verdict], chance: Random) -> list[Plan]:
    """Plan a kill at every boundary that was found, and in every third run another one of the successor."""
    plans = []
    for verdict in sorted(clean, key=lambda one: str(one.plan)):
        for number, label in enumerate(verdict.boundaries):
            plans.append(_killed_at(verdict, label))
            if number % 3 == 0:
                plans.append(_killed_at(verdict, label, chance.choice(verdict.boundaries)))
    chance.shuffle(plans)
    return plans


def some_kills(clean: Iterable[Verdict], chance: Random, number: int) -> list[Plan]:
    """Plan so many kills that each scenario is met, and each kind of boundary as often as the others."""
    left = [(verdict, list(verdict.boundaries)) for verdict in sorted(clean, key=lambda one: str(one.plan))]
    met: Counter[str] = Counter()
    plans: list[Plan] = []
    for verdict, labels in cycle(left):
        if len(plans) == number or not any(labels for _, labels in left):
            return plans
        if labels:
            rarest = min(met[kind_of(label)] for label in labels)
            label = chance.choice([label for label in labels if met[kind_of(label)] == rarest])
            labels.remove(label)
            met[kind_of(label)] += 1
            plans.append(_killed_at(verdict, label))
    return plans


def kind_of(label: str) -> str:
    """Return a boundary without its number."""
    name, _, moment = label.partition(":")
    return f"{name.partition('#')[0]}:{moment}"


def _killed_at(clean: Verdict, *labels: str) -> Plan:
    return Plan(clean.plan.scenario, clean.plan.shape, labels, clean.outline)
