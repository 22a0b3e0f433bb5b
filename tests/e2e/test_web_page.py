"""The web page in a browser, against a server process: what people do and see, and what they are spared."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.support.browser import CHROMIUM, Page, chromium_page
from tests.support.model_script import gate, hang, says
from tests.support.program import held_port, serve
from tests.support.system import System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.model_server import ModelServer

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian's package chromium)")

ATTACK = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>'
LONG = " ".join(f"word{number}" for number in range(300))
BEGUN, GOES_ON = f"You said: {LONG}"[:600], f"You said: {LONG}"[600:]
LIVE = "document.querySelector('article.live')?.innerText"
REPLY = "[...document.querySelectorAll('article.assistant:not(.live)')].at(-1)?.innerText"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with chromium_page(tmp_path / "profile") as page:
        yield page
        assert page.problems == []


@pytest.fixture
async def url(database_url: str, tmp_path: Path) -> AsyncIterator[str]:
    async with serve("--port", "0", database_url=database_url, data_dir=str(tmp_path)) as served:
        yield served.url


async def test_what_is_said_is_answered_while_people_watch(
    page: Page, system: System, model_server: ModelServer
) -> None:
    model_server.expect(says(BEGUN, gate("seen"), GOES_ON))
    await page.goto(system.url)
    await page.sees("None yet.")
    await say(page, LONG)

    await page.until(f"{LIVE}?.includes('word9')")
    model_server.open("seen")
    await page.until(f"{REPLY}?.includes('word299')")
    await page.until("document.querySelector('#status').innerText === 'idle'")
    await page.until("document.querySelector('#conversations .status').innerText === 'idle'")
    assert await page.evaluate("document.querySelectorAll('#conversations li').length") == 1
    assert (
        await page.evaluate(
            "(box => box.scrollHeight - box.scrollTop - box.clientHeight)(document.getElementById('scroll'))"
        )
        < 2
    )
    assert await page.evaluate("document.title") == f"{LONG[:60]}… · Rejoinder"


async def test_a_person_edits_what_a_tool_is_to_do(page: Page, url: str, tmp_path: Path) -> None:
    await page.goto(url)
    await say(page, "email ada@example.org: hi")
    await page.click("button", "Edit…")

    await page.fill("textbox", "Arguments (JSON)", '{"to": ')
    await page.click("button", "Run with these")
    await page.sees("This is no valid JSON")
    await page.fill("textbox", "Arguments (JSON)", '{"to": 3, "body": "hi"}')
    await page.click("button", "Run with these")
    await page.sees("args.to: Input should be a valid string")
    await page.fill("textbox", "Arguments (JSON)", '{"to": "bob@example.org", "body": "hello"}')
    await page.click("button", "Run with these")

    await page.until(f"{REPLY}?.startsWith('About the email')")
    sent = [json.loads(line) for line in (tmp_path / "outbox.jsonl").read_text().splitlines()]
    assert [(mail["to"], mail["body"]) for mail in sent] == [("bob@example.org", "hello")]
    card = await page.evaluate("document.querySelector('.call').textContent")
    assert "Edited and approved by local." in card
    assert "ada@example.org" in card
    assert "bob@example.org" in card


async def test_a_conversation_is_looked_at_event_by_event(page: Page, url: str) -> None:
    await page.goto(url)
    await say(page, "email ada@example.org: hi")
    await page.wait_for("button", "Approve")
    await page.click("link", "Steps")
    await page.until("document.querySelectorAll('#steps > details').length === 6")
    asked = "document.querySelectorAll('#steps > details')[5]"
    await page.evaluate(f"{asked}.open = true")
    await page.sees("Owed then: await_input call_")
    call = await page.evaluate("document.querySelectorAll('#steps > details')[4].textContent")
    assert 'send_email(to="ada@example.org", body="hi")' in call
    assert "The next event was appended with this one." in call
    assert "+ /calls/" in call

    await page.click("button", "Why?")
    trace = await page.until(f"{asked}.querySelector('.result pre')?.textContent")
    assert [line.split()[:3] for line in trace.splitlines()][-1] == ["*", "6", "suspension"]
    assert trace.splitlines()[-1].endswith("← this event")
    await page.click("button", "What the model would see")
    await page.sees("Reconstructed from the log, for demo")
    await page.click("button", "What if not?")
    await page.sees("Without it the log would end with event 5 and owe run_tools call_")

    await page.click("link", "Conversation")
    await page.click("button", "Approve")
    await page.until(f"{REPLY}?.startsWith('About the email')")


async def test_a_deadline_that_moves_disturbs_nobody_who_types(page: Page, url: str) -> None:
    async with client(url) as call:
        created = await call("/v1/conversations", {"message": {"content": "ask me something"}})
        path = f"/v1/conversations/{created['conversation_id']}"
        await page.goto(f"{url}/#/c/{created['conversation_id']}")
        await page.fill("textbox", "Answer", "gre")
        await page.sees("Waits until")
        await page.until("document.querySelector('#inbox-count').innerText === '1'")  # the read model has it
        pending = await call(f"{path}/tool-calls", method="GET")
        tool_call_id = pending["items"][0]["tool_call_id"]
        await call(f"{path}/tool-calls/{tool_call_id}", {"expires_at": None}, method="PATCH")
    await page.until("!document.body.innerText.includes('Waits until')")
    assert await page.evaluate("document.activeElement.value") == "gre"


async def test_a_person_rejects_and_the_agent_reads_why(page: Page, url: str, tmp_path: Path) -> None:
    await page.goto(url)
    await say(page, "email ada@example.org: hi")
    await page.click("button", "Reject…")
    await page.fill("textbox", "Reason, for the agent (optional)", "she is on holiday")
    await page.click("button", "Reject")

    await page.until(f"{REPLY}?.includes('she is on holiday')")
    await page.sees("rejected")
    assert not (tmp_path / "outbox.jsonl").exists()


async def test_everything_can_be_done_by_keyboard(page: Page, url: str, tmp_path: Path) -> None:
    await page.goto(url)
    await page.tab_to("Send")
    await page.tab_to("", shift=True)
    await page.do("Input.insertText", text="ask me something and email ada@example.org: hi")
    await page.press("Enter")

    await page.wait_for("button", "Approve")
    await page.tab_to("Answer", shift=True)
    await page.tab_to("", shift=True)
    await page.do("Input.insertText", text="green")
    await page.tab_to("Answer")
    await page.press("Enter")
    await page.until("document.querySelector('.call').textContent.includes('Answered by local.')")
    await page.tab_to("Approve")
    await page.press(" ")

    await page.until(f"{REPLY}?.includes('You answered: green')")
    assert (tmp_path / "outbox.jsonl").exists()


async def test_the_browser_tells_where_it_is_when_its_person_says_so(page: Page, url: str) -> None:
    await page.do("Emulation.setGeolocationOverride", latitude=52.5, longitude=13.4, accuracy=1)
    await page.goto(url)
    await say(page, "where am I")
    await page.wait_for("button", "Use my location")
    await page.allow(url, "geolocation")
    await page.click("button", "Use my location")
    await page.until("document.querySelector('.fields input').value === '52.5'")
    await page.click("button", "Answer")

    await page.until(f"{REPLY}?.startsWith('You are here') && {REPLY}.includes('13.4')")


async def test_a_page_loaded_while_the_agent_speaks_shows_the_text_so_far_and_goes_on(
    page: Page, system: System, model_server: ModelServer
) -> None:
    model_server.expect(says(BEGUN, gate("loaded"), GOES_ON))
    await page.goto(system.url)
    await say(page, LONG)
    await page.until(f"{LIVE}?.includes('word40')")
    await page.reload()

    await page.until(f"{LIVE}?.includes('word0 word1 word2')")
    model_server.open("loaded")
    await page.until(f"{REPLY}?.includes('word299')")
    said = await page.evaluate("[...document.querySelectorAll('article .text')].map(text => text.innerText)")
    assert said == [LONG, f"You said: {LONG}"]


async def test_an_agent_that_speaks_can_be_stopped(page: Page, system: System, model_server: ModelServer) -> None:
    model_server.expect(says(BEGUN, hang()))
    await page.goto(system.url)
    await say(page, LONG)
    await page.until(f"{LIVE}?.includes('word40')")
    await page.click("button", "Stop")
    await page.until("document.querySelector('article.cut')?.innerText.includes('word40')")
    await page.sees("Stopped.")


async def test_markup_stays_text_wherever_it_comes_from(page: Page, url: str) -> None:
    await page.goto(url)
    await say(page, f"email ada@example.org: {ATTACK}")
    await page.click("button", "Reject…")
    await page.fill("textbox", "Reason, for the agent (optional)", ATTACK)
    await page.click("button", "Reject")
    await page.until(f"{REPLY}?.includes('onerror')")
    await say(page, ATTACK)
    await page.until(f"{REPLY}?.startsWith('You said')")
    await page.reload()
    await page.until(f"{REPLY}?.startsWith('You said')")
    await page.until("document.querySelector('#conversations li')?.innerText.includes('<img src=x')")

    assert await page.evaluate(f"{REPLY}.startsWith({json.dumps('You said: ' + ATTACK)})")
    assert await page.evaluate("document.querySelectorAll('main img, main script').length + (window.hit ?? 0)") == 0


async def test_people_talk_on_and_end_while_the_agent_is_busy(page: Page, url: str) -> None:
    await page.goto(url)
    await say(page, "email ada@example.org: hi")
    await page.wait_for("button", "Approve")
    await say(page, "one more thing")
    await page.sees("1 message waits")
    await page.choose("While it works", "stop it and answer")
    await say(page, "forget the email")
    await page.until(f"{REPLY}?.includes('forget the email') && {REPLY}.includes('one more thing')")
    await page.sees("Stopped.")
    assert "Approve" not in await page.text()

    await page.click("button", "End")
    await page.click("button", "End it")
    await page.sees("This conversation has ended.")
    assert await page.find("textbox", "Message") == []


async def test_a_lost_server_is_waited_for_and_nothing_is_said_twice(
    page: Page, database_url: str, tmp_path: Path
) -> None:
    settings = {"database_url": database_url, "data_dir": str(tmp_path)}
    given_up = "document.getElementById('text').value === 'after' && !document.getElementById('text').readOnly"
    with held_port() as port:
        async with serve("--port", str(port), **settings) as served:
            await page.goto(served.url)
            await say(page, "before")
            await page.until(f"{REPLY}?.includes('You said: before')")
            await served.kill()
        await page.sees("reconnecting…")
        await say(page, "after", sent=False)
        async with serve("--port", str(port), **settings):
            await page.until(f"{REPLY}?.includes('You said: after') || {given_up}")
            if await page.evaluate(given_up):  # before the server was there: people try again
                await say(page, "after")
            await page.until(f"{REPLY}?.includes('You said: after')")
            await page.until("!document.body.innerText.includes('reconnecting')")
            said = await page.evaluate(
                "[...document.querySelectorAll('article.user .text')].map(text => text.innerText)"
            )

    assert said == ["before", "after"]


async def test_a_server_with_keys_is_asked_only_with_one_and_approvers_have_their_inbox(
    page: Page, database_url: str, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps([key("ada", "ada"), key("alan", "alan", "approver")]))
    async with (
        serve("--port", "0", database_url=database_url, data_dir=str(tmp_path), api_keys_file=str(keys)) as served,
        aiohttp.ClientSession(headers={"Authorization": "Bearer ada"}) as session,
    ):
        conversation = await System(served.url, session).start("email ada@example.org: hi")
        await page.goto(f"{served.url}/#/inbox")
        await page.fill("textbox", "API key", "nonsense")
        await page.press("Enter")
        await page.sees("The server does not know this key.")
        await page.fill("textbox", "API key", "alan")
        await page.press("Enter")

        await page.click("button", "Approve")
        await page.sees("Nothing waits for you.")
        await page.sees("None yet.")  # what is ada's is not alan's to read
        async with page.loading():
            await page.click("button", "Forget key")
        await page.wait_for("dialog", "A key, please")
        await conversation.turn_ends()
    assert (tmp_path / "outbox.jsonl").exists()


async def test_an_address_that_leads_nowhere_says_so(page: Page, url: str) -> None:
    await page.goto(f"{url}/#/c/00000000-0000-0000-0000-000000000000")
    await page.sees("There is nothing here that this caller may see.")
    assert await page.find("textbox", "Message") == await page.find("button", "End") == []


async def test_the_list_goes_on_where_its_first_page_ends(page: Page, url: str) -> None:
    async with client(url) as call:
        made = await asyncio.gather(*(call("/v1/conversations", {"title": f"number {n}"}) for n in range(51)))
        await call(f"/v1/conversations?wait_ms=30000&min_position={max(one['position'] for one in made)}", method="GET")
    await page.goto(url)
    await page.until("document.querySelectorAll('#conversations li').length === 50")
    await page.click("button", "Load more")
    await page.until("document.querySelectorAll('#conversations li').length === 51")
    assert await page.find("button", "Load more") == []


async def test_conversations_are_found_by_what_was_said_in_them(page: Page, url: str) -> None:
    titles = "[...document.querySelectorAll('#conversations .title')].map(title => title.innerText).join()"
    async with client(url) as call:
        for title, text in (("Trip", "weather in Paris"), ("Food", "bread"), ("Paris", "hotels")):
            await call("/v1/conversations", {"title": title, "message": {"content": text, "respond": False}})
    await page.goto(url)
    await page.until(f"{titles} === 'Paris,Food,Trip'")
    await page.fill("searchbox", "Search conversations", "PARIS")
    await page.until(f"{titles} === 'Paris,Trip'")
    await page.fill("searchbox", "Search conversations", 'paris -hotels "weather in"')
    await page.until(f"{titles} === 'Trip'")
    await page.fill("searchbox", "Search conversations", '"')
    await page.sees("Nothing found.")
    await page.evaluate("document.activeElement.select() ?? document.execCommand('delete')")
    await page.until(f"{titles} === 'Paris,Food,Trip'")


async def test_answers_are_asked_for_by_their_schema(page: Page, url: str) -> None:
    await page.goto(url)
    schemas = {
        "text": {"type": "string"},
        "number": {"type": "number"},
        "yes or no": {"type": "boolean"},
        "choice": {"enum": ["red", 2]},
        "list": {"type": "array"},
        "form": {"properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]},
    }
    answers = await page.run(
        """async (schemas) => {
            const { answerFields } = await import("/page/answer_fields.js");
            const answers = {};
            for (const [name, schema] of Object.entries(schemas)) {
                const { node, value } = answerFields(schema, name);
                const inputs = [...node.querySelectorAll("input, textarea, select")];
                const typed = { text: "12", number: "1.5", "yes or no": "1", choice: "1", list: "[1]", form: "Ada" };
                inputs[0].value = typed[name];
                answers[name] = value();
            }
            return answers;
        }""",
        schemas,
    )
    assert answers == {
        "text": "12",
        "number": 1.5,
        "yes or no": False,
        "choice": 2,
        "list": [1],
        "form": {"name": "Ada"},
    }


async def test_thoughts_are_folded_and_failures_shown(page: Page, url: str) -> None:
    await page.goto(url)
    at: dict[str, Any] = {"turn": 1, "step": 1, "attempt": 1, "try": 1}
    frames = [
        {"name": "partial", "data": at | {"kind": "thinking", "text": "let me "}},
        {"name": "delta", "data": at | {"kind": "thinking", "text": "see"}},
        {"name": "delta", "data": at | {"kind": "text", "text": "wrong"}},
        {"name": "partial", "data": at | {"try": 2, "kind": "text", "text": ""}},
        {"name": "partial", "data": at | {"try": 2, "kind": "thinking", "text": "again"}},
        {"name": "turn_ended", "data": {"data": {"turn": 1, "outcome": "failed", "reason": "rate_limited"}}},
    ]
    shown = await page.run(
        """async (frames) => {
            const { Thread } = await import("/page/thread.js");
            const log = document.getElementById("log");
            const thread = new Thread(log, document.getElementById("waiting"), () => {});
            return frames.map(frame => { thread.take(frame); return [log.innerText, log.textContent]; });
        }""",
        frames,
    )
    assert [text for text, _ in shown] == ["Thinking"] * 2 + ["Thinking\n\nwrong", "", "Thinking", shown[-1][0]]
    assert [text for _, text in shown][1:5] == [
        "Thinkinglet me see",
        "Thinkinglet me seewrong",
        "Thinking",
        "Thinkingagain",
    ]
    assert shown[-1][0] == "The turn failed: rate_limited"


async def test_a_phone_shows_it_all_without_scrolling_sideways_by_day_and_night(page: Page, url: str) -> None:
    await page.do("Emulation.setDeviceMetricsOverride", width=360, height=640, deviceScaleFactor=2, mobile=True)
    await page.goto(f"{url}/#/new")
    await say(page, f"where am I, and email ada@example.org: {'x' * 500}")
    await page.wait_for("button", "Approve")
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
    assert await page.evaluate("document.getElementById('scroll').scrollWidth") <= 360

    grounds = []
    for scheme in ("light", "dark"):
        await page.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        grounds.append(await page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
    assert len(set(grounds)) == 2
    await page.click("link", "All conversations")
    await page.wait_for("link", "Inbox 2")


async def say(page: Page, text: str, *, sent: bool = True) -> None:
    await page.fill("textbox", "Message", text)
    await page.press("Enter")
    if sent:
        await page.until("document.getElementById('text').value === ''")


def key(text: str, user: str, *roles: str) -> dict[str, Any]:
    return {
        "key_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "tenant": "acme",
        "user": user,
        "roles": list(roles),
    }


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Any]:
    async with aiohttp.ClientSession() as session:

        async def call(path: str, body: Any = None, *, method: str = "POST") -> Any:
            async with session.request(method, url + path, json=body) as response:
                assert response.ok, await response.text()
                return await response.json()

        yield call
