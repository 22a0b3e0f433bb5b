"""One run of the matrix: a scenario, the process that is killed in it, those that go on, and the verdict."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, count, repeat
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from domain.summarising import INSTRUCTIONS
from domain.wire import stream_of, summary_stream_of
from infra.database import Database
from projections.catalog import PROJECTIONS
from tests.crash.matrix.boundaries import Boundaries
from tests.crash.matrix.checks import Traces, violations
from tests.crash.matrix.composition import Part, composed
from tests.crash.matrix.deaths import recoveries
from tests.crash.matrix.follower import Follower
from tests.crash.matrix.outline import outline_of, told
from tests.crash.matrix.person import Front, Person
from tests.crash.matrix.scenario import Upstream, usual_answer
from tests.crash.matrix.stores import open_store
from tests.support.model_script import text_of
from tests.support.read_side import ReadSide
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from projections.projection import Projection, Row
    from tests.crash.matrix.rig import Rig
    from tests.crash.matrix.scenario import Scenario
    from tests.crash.matrix.victims import Victim
    from tests.support.model_script import Scripted

Shape = Literal["whole", "behind"]
"""``whole``: all roles die together; ``behind``: the api lives on, projector and worker die."""

LOOK_AGAIN_S = 0.02
FOLLOWERS_S = 60.0
_numbers = count(1)

# What the dead held is theirs for seconds, which need not be waited for: they are made to have passed.
LAPSE = """
with held as (update agenda set hold_until = clock_timestamp() where claimed_by is not null)
update leases set until = clock_timestamp()
"""
RESTLESS = """
select exists (
        select from agenda
        where wake_at <= clock_timestamp() or (claimed_by is not null and hold_until > clock_timestamp())),
    (select min(position) from projections)
"""


@dataclass(frozen=True)
class Plan:
    """What to run, and where it and its successors are killed; `clean` is the outline of a run without kills.

    `patient`: what the dead held is waited for.
    """

    scenario: Scenario
    shape: Shape = "whole"
    kills: tuple[str, ...] = ()
    clean: list[str] | None = None
    patient: bool = False

    def __str__(self) -> str:
        return f"{self.scenario.name} ({self.shape}) {', then '.join(self.kills) or 'not killed'}"


@dataclass(frozen=True)
class Verdict:
    """How a run went: what was wrong, which boundaries its first process reached, and how many died at theirs.

    `recoveries` are seconds until a conversation was worked on again, `sent_again` counts repeated commands.
    """

    plan: Plan
    wrong: list[str]
    boundaries: list[str]
    deaths: int
    recoveries: list[float]
    sent_again: int
    seconds: float
    outline: list[str]
    story: list[str]

    def __str__(self) -> str:
        summary = f"{self.plan}: {self.deaths} killed, {self.seconds:.2f} s"
        return "\n".join([summary, *self.wrong, *self.story])


async def run(rig: Rig, plan: Plan) -> Verdict:
    """Run it, and judge what it leaves behind."""
    began, wrong = monotonic(), list[str]()
    the_run = _Run(rig, plan)
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
            await the_run.open(stack)
            wrong += violations(await the_run.played())
    except TimeoutError:
        wrong.append(f"not finished after {PATIENCE_S:g} s")
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {error}")
    return the_run.verdict(wrong, monotonic() - began)


class _Run:
    def __init__(self, rig: Rig, plan: Plan) -> None:
        self._rig, self._plan = rig, plan
        self._name = f"r{next(_numbers)}"
        self._upstream = Upstream(self._name, rig.models.open)
        self._victims: list[Victim] = []
        self._person: Person | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self, stack: AsyncExitStack) -> None:
        """Open the run's own database and log, and let its first process begin."""
        enter, rig, front = stack.enter_async_context, self._rig, Front()
        database_url = await enter(rig.database())
        self._database = await enter(Database(database_url, max_connections=4))
        store = await enter(open_store(rig.store(database_url)))
        self._read_side = ReadSide(store, self._database, PROJECTIONS)
        await self._read_side.execute(LAPSE)
        self._person = Person(self._name, store, rig.session, front)
        rig.scripts.by_run[self._name] = self._answer
        stack.callback(rig.scripts.by_run.pop, self._name)
        part = Part(
            ("projector", "worker", "api"),
            database_url,
            rig.store(database_url),
            f"openai/{self._name}",
            rig.models.url,
        )
        if self._plan.shape == "behind":
            alive = replace(part, roles=("api",))
            front.opens(await enter(composed(alive, Boundaries(lambda **_: None, None))))
            part = replace(part, roles=("projector", "worker"))
        stack.push_async_callback(self._close)
        path = f"{self._person.path}/stream"
        self._followers = [Follower(rig.session, front, path, view) for view in ("events", "messages")]
        following = [self._person.follow(), *(follower.follow() for follower in self._followers)]
        self._supporting = [self._start(work) for work in (self._live(part, front), *following)]

    async def played(self) -> Traces:
        """Play the scenario to its end, wait until everything rests, and gather what is there."""
        assert self._person is not None
        playing = self._start(self._play(self._person))
        await asyncio.wait([playing, *self._supporting], return_when=asyncio.FIRST_COMPLETED)
        for task in (*self._supporting, playing):
            if task.done():
                task.result()
        stored = await self._read_side.store.read(stream_of(self._person.id))
        summaries = await self._read_side.store.read(summary_stream_of(self._person.id))
        return Traces(
            scenario=self._plan.scenario,
            stored=stored,
            summaries=summaries,
            acknowledged=self._person.acknowledged,
            victims=self._victims,
            requests=self._upstream.requests,
            asked_to_summarise=len(self._upstream.summaries),
            views=[(projection, await self._rows(projection)) for projection in PROJECTIONS],
            followers=self._followers,
            messages=await self._seen_by_all(stored[-1].seq),
            clean=self._plan.clean,
            now=datetime.now(UTC),
        )

    async def _seen_by_all(self, seq: int) -> dict[str, dict[str, Any]]:
        """Wait until those who follow see what is there, if they ever do, and return that."""
        assert self._person is not None
        messages, (by_event, by_message) = await self._person.messages(), self._followers
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLLOWERS_S):
                while by_event.seq < seq or by_message.rows != messages:  # noqa: ASYNC110 - two streams
                    await asyncio.sleep(LOOK_AGAIN_S)
        return messages

    async def _rows(self, projection: Projection) -> dict[tuple[Any, ...], Row]:
        assert self._person is not None
        rows = await self._read_side.rows(projection)
        return {key: row for key, row in rows.items() if key[0] == self._person.id}

    def verdict(self, wrong: list[str], seconds: float) -> Verdict:
        """Say how it went; the story is told only if something was wrong."""
        log = self._person.log if self._person else []
        noted = [f"process {n}: {note}" for n, victim in enumerate(self._victims, 1) for note in victim.notes]
        return Verdict(
            self._plan,
            wrong,
            self._victims[0].boundaries if self._victims else [],
            sum(victim.died_there for victim in self._victims),
            recoveries(self._victims) if self._plan.patient else [],
            sum(one.tries - 1 for one in self._person.acknowledged) if self._person else 0,
            seconds,
            outline_of(log),
            [*told(log), *noted] if wrong else [],
        )

    async def _play(self, person: Person) -> None:
        await self._plan.scenario.play(person, self._upstream)
        while not await self._rests(person):  # noqa: ASYNC110 - a hand-back is announced to nobody
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _rests(self, person: Person) -> bool:
        [(restless, folded)] = await self._read_side.execute(RESTLESS)
        streams = stream_of(person.id), summary_stream_of(person.id)
        newest = [event for one in streams for event in await self._read_side.store.read(one, limit=1)]
        return not restless and all(folded >= event.position for event in newest)

    async def _live(self, part: Part, front: Front) -> None:
        """Keep one process alive: the first dies where it is planned, and so may those after it."""
        for kill_at in chain(self._plan.kills, repeat(None)):
            victim = self._rig.zygote.fork(part, kill_at)
            self._victims.append(victim)
            if url := await victim.serves():
                front.opens(url)
            status = await victim.ends()
            if "api" in part.roles:
                front.closes()
            if not victim.died_there:
                raise AssertionError(f"a process ended by itself, with {status}")
            if not self._plan.patient:
                await self._read_side.execute(LAPSE)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for victim in self._victims:
            await victim.kill()

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _answer(self, body: dict[str, Any]) -> Scripted:
        assert self._person is not None
        self._start(self._person.stir())
        if text_of(body["messages"][0]) == INSTRUCTIONS:
            self._upstream.summaries.append(body)
            return self._plan.scenario.summarise(self._upstream)
        self._upstream.requests.append(body)
        last = body["messages"][-1]
        scripted = self._plan.scenario.answer(self._upstream, text_of(last)) if last["role"] == "user" else None
        return scripted or usual_answer(body)
