"""Headless Chromium, driven over its DevTools protocol; elements are found by role and name, as people find them."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"),
    # it is to talk to nobody but the server under test
    *("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
)
END_S = 20
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), " ": (32, " ")}
CHANGE = """new Promise(done => {
    const changed = () => { watch.disconnect(); clearTimeout(timer); done(); };
    const watch = new MutationObserver(changed);
    watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
    const timer = setTimeout(changed, 250);
})"""

AT_REST = """async function () {
    const beat = () => new Promise(requestAnimationFrame);
    for (let [before, same] = ["", 0]; this.isConnected; await beat()) {
        this.scrollIntoViewIfNeeded();
        const { left, top, width, height } = this.getClientRects()[0] ?? {};
        const at = [left + width / 2, top + height / 2];
        same = before === at.join() && this.contains(document.elementFromPoint(...at)) ? same + 1 : 0;
        if (same > 1 && !this.matches(":disabled")) return at;
        before = at.join();
    }
}"""
"""Returns the middle of an element once that has stopped moving and can be pressed; undefined if it is gone."""


class BrowserError(Exception):
    """The browser refused a command, or a script of the page raised."""


class Page:
    """A tab. `problems` collects what scripts raised and what the browser complained about."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.problems: list[str] = []
        self._socket, self._ids = socket, itertools.count(1)
        self._session: dict[str, str] = {}
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()

    async def listen(self) -> None:
        """Take in what the browser says; runs beside everything else."""
        async for message in self._socket:
            said = json.loads(message.data)
            answer = self._answers.pop(said.get("id"), None)
            if answer is not None and not answer.done():  # whoever asked may have given up
                answer.set_result(said)
            match said.get("method"):
                case "Page.loadEventFired":
                    self._loaded.set()
                case "Runtime.exceptionThrown":
                    self.problems.append(json.dumps(said["params"]["exceptionDetails"]))
                case "Log.entryAdded" if said["params"]["entry"]["source"] != "network":  # a refusal is no fault
                    self.problems.append(json.dumps(said["params"]["entry"]))

    async def open(self) -> None:
        """Make the tab."""
        target = await self.do("Target.createTarget", url="about:blank")
        attached = await self.do("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "DOM", "Accessibility"):
            await self.do(f"{domain}.enable")
        await self.until("document.readyState === 'complete'")  # or the end of this load is taken for that of the next

    async def do(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its result."""
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params, **self._session})
        async with asyncio.timeout(PATIENCE_S):
            said = await answer
        if "error" in said:
            raise BrowserError(f"{method}: {said['error']['message']}")
        return dict(said["result"])

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """Wait at the end of the block for the load that it has begun: Chromium may never answer who asks meanwhile."""
        self._loaded.clear()
        yield
        async with asyncio.timeout(PATIENCE_S):
            await self._loaded.wait()

    async def goto(self, url: str) -> None:
        """Load a page."""
        async with self.loading():
            if "loaderId" not in await self.do("Page.navigate", url=url):
                self._loaded.set()  # only the fragment changed

    async def reload(self) -> None:
        """Load the page again."""
        async with self.loading():
            await self.do("Page.reload")

    async def evaluate(self, expression: str) -> Any:
        """Return the JSON value of an expression, awaited."""
        result = await self.do("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    async def run(self, function: str, argument: Any) -> Any:
        """Call a function of JavaScript with a JSON value and return what it returns, awaited."""
        return await self.evaluate(f"({function})({json.dumps(argument)})")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true, looking again at every change of the page, and return its value."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (value := await self.evaluate(expression)):
                    await self.evaluate(CHANGE)
                return value
        except TimeoutError:
            raise AssertionError(f"never true: {expression}\n{await self.text()}\n{self.problems}") from None

    async def sees(self, text: str) -> None:
        """Wait until the page shows a text."""
        await self.until(f"document.body.innerText.includes({json.dumps(text)})")

    async def text(self) -> str:
        """Return what the page shows."""
        return str(await self.evaluate("document.body.innerText"))

    async def find(self, role: str, name: str) -> list[int]:
        """Return the elements of this role and accessible name that are shown now."""
        root = (await self.do("DOM.getDocument"))["root"]["backendNodeId"]
        found = await self.do("Accessibility.queryAXTree", backendNodeId=root, role=role, accessibleName=name)
        return [node["backendDOMNodeId"] for node in found["nodes"] if not node["ignored"]]

    async def wait_for(self, role: str, name: str) -> int:
        """Wait until there is an element of this role and name, and return the last one."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (nodes := await self.find(role, name)):
                    await self.evaluate(CHANGE)
                return nodes[-1]
        except TimeoutError:
            raise AssertionError(f"no {role} {name!r}\n{await self.text()}\n{self.problems}") from None

    async def click(self, role: str, name: str) -> None:
        """Press the mouse on it, where it comes to rest."""
        while (at := await self._at_rest(await self.wait_for(role, name))) is None:
            pass  # another one has taken its place
        for kind in ("mousePressed", "mouseReleased"):
            await self.do("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    async def _at_rest(self, node: int) -> dict[str, float] | None:
        found = (await self.do("DOM.resolveNode", backendNodeId=node))["object"]["objectId"]
        asked = {"objectId": found, "functionDeclaration": AT_REST, "awaitPromise": True, "returnByValue": True}
        middle = (await self.do("Runtime.callFunctionOn", **asked))["result"].get("value")
        return {"x": middle[0], "y": middle[1]} if middle else None

    async def fill(self, role: str, name: str, text: str) -> None:
        """Type a text in the place of what is there."""
        await self.do("DOM.focus", backendNodeId=await self.wait_for(role, name))
        await self.evaluate("document.activeElement.select?.()")
        await self.do("Input.insertText", text=text)

    async def choose(self, name: str, label: str) -> None:
        """Choose an option of a list."""
        await self.do("DOM.focus", backendNodeId=await self.wait_for("combobox", name))
        index = f"[...document.activeElement.options].findIndex(one => one.label === {json.dumps(label)})"
        await self.evaluate(f"document.activeElement.selectedIndex = {index}")

    async def tab_to(self, text: str, *, shift: bool = False) -> None:
        """Press Tab until what has the focus shows this text."""
        for _ in range(50):
            await self.press("Tab", shift=shift)
            if await self.evaluate("document.activeElement.innerText") == text:
                return
        raise AssertionError(f"Tab does not lead to {text!r}")

    async def allow(self, origin: str, permission: str) -> None:
        """Say yes, for the person, to what the browser would ask."""
        await self.do("Browser.grantPermissions", origin=origin, permissions=[permission])

    async def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key."""
        code, text = KEYS[key]
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        await self.do("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        await self.do("Input.dispatchKeyEvent", type="keyUp", **event)


@asynccontextmanager
async def chromium_page(profile: Path) -> AsyncIterator[Page]:
    """Run Chromium with an empty profile and yield its one page."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *FLAGS, f"--user-data-dir={profile}", stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while b"DevTools listening on " not in (line := await process.stderr.readline()):
                assert line, "Chromium ended"
        reading = asyncio.create_task(process.stderr.read())  # or it would wait for a reader one day
        address = line.decode().rpartition(" ")[2].strip()
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            page = Page(socket)
            listening = asyncio.create_task(page.listen())
            try:
                await page.open()
                yield page
            finally:
                process.terminate()
                with suppress(TimeoutError):
                    async with asyncio.timeout(END_S):
                        await process.wait()
                if process.returncode is None:
                    process.kill()
                await listening
        await reading
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
