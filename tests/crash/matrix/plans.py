"""What is run: every scenario without a kill, to find its boundaries, then with kills at all or at some of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
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
SHORT = 60
"""So many kills has the short form, …"""
LANES = 4
"""… and so many runs go on side by side: most of one is waiting."""


@dataclass
class Report:
    """What was run and what came of it."""

    verdicts: list[Verdict] = field(default_factory=list)
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
        each = self.seconds / len(self.verdicts) if self.verdicts else 0.0
        return (
            f"{len(self.verdicts)} runs of {scenarios} scenarios, {self.kills} kills, {missed} boundaries not reached, "
            f"{len(self.violations)} runs with violations, {self.seconds:.0f} s ({each:.2f} s a run)"
        )


async def short_form(rig: Rig, scenarios: Iterable[Scenario], tell: Tell, *, seed: int, kills: int) -> Report:
    """Run each scenario without a kill, then with some: each scenario and each kind of boundary is met."""
    return await _matrix(rig, scenarios, tell, lambda clean: some_kills(clean, Random(seed), kills))


async def full_form(rig: Rig, scenarios: Iterable[Scenario], tell: Tell, *, seed: int) -> Report:
    """Run each scenario without a kill, then with one at every boundary, and with many second ones."""
    return await _matrix(rig, scenarios, tell, lambda clean: all_kills(clean, Random(seed)))


async def chosen_form(rig: Rig, scenarios: Iterable[Scenario], tell: Tell, *, kills: tuple[str, ...]) -> Report:
    """Run each scenario without a kill, then with these."""
    return await _matrix(rig, scenarios, tell, lambda clean: [_killed_at(verdict, *kills) for verdict in clean])


async def _matrix(
    rig: Rig, scenarios: Iterable[Scenario], tell: Tell, planned: Callable[[Sequence[Verdict]], list[Plan]]
) -> Report:
    began = monotonic()
    clean = await run_all(rig, [Plan(scenario, shape) for scenario in scenarios for shape in SHAPES], tell)
    killed = await run_all(rig, planned([verdict for verdict in clean if not verdict.wrong]), tell)
    return Report([*clean, *killed], monotonic() - began)


async def run_all(rig: Rig, plans: Iterable[Plan], tell: Tell) -> list[Verdict]:
    """Run plans side by side, telling of each when it is over."""
    waiting, verdicts = iter(plans), list[Verdict]()

    async def lane() -> None:
        for plan in waiting:
            verdicts.append(await run(rig, plan))
            tell(verdicts[-1])

    await asyncio.gather(*(lane() for _ in range(LANES)))
    return verdicts


def all_kills(clean: Iterable[Verdict], chance: Random) -> list[Plan]:
    """Plan a kill at every boundary that was found, and in every third run another one of the successor."""
    plans = []
    for verdict in clean:
        for number, label in enumerate(verdict.boundaries):
            plans.append(_killed_at(verdict, label))
            if number % 3 == 0:
                plans.append(_killed_at(verdict, label, chance.choice(verdict.boundaries)))
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
