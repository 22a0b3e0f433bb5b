"""The web page's files: open to everybody, safe to show, fresh, and no more than they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from api.routes.page import page_files

if TYPE_CHECKING:
    from tests.api.conftest import Api

TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


async def test_the_page_and_all_that_it_loads_are_there_without_a_key(api: Api) -> None:
    page = await api("GET", "/", by=None)
    sources = "".join(file.content.decode() for file in page_files().values())
    wanted = set(re.findall(r'(?:src|href)="page/([^"]+)"|from "\./([^"]+)"', sources))
    names = {name for found in wanted for name in found if name}

    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert names == set(page_files()) - {"index.html"}
    for name in names:
        answer = await api("GET", f"/page/{name}", by=None)
        expected = f"{TYPES[name.rpartition('.')[2]]}; charset=utf-8"
        assert (answer.status, answer.headers["Content-Type"]) == (200, expected)


async def test_the_page_runs_scripts_of_this_server_only_and_is_in_nobodys_frame(api: Api) -> None:
    page = await api("GET", "/", by=None)
    policy = dict(rule.split(" ", 1) for rule in page.headers["Content-Security-Policy"].split("; "))

    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in str(policy)
    assert not re.search(rb"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page.raw)


def test_the_scripts_never_make_html_of_a_string() -> None:
    for name, file in page_files().items():
        assert not re.search(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|eval\(", file.content), (
            name
        )


async def test_a_known_file_is_not_sent_again_until_it_changes(api: Api) -> None:
    first = await api("GET", "/page/main.js", by=None)
    again = await api("GET", "/page/main.js", by=None, headers={"If-None-Match": first.headers["ETag"]})
    other = await api("GET", "/page/main.js", by=None, headers={"If-None-Match": '"another"'})

    assert first.headers["Cache-Control"] == "no-cache"
    assert (again.status, again.raw, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    assert (other.status, other.raw) == (200, first.raw)


async def test_nothing_but_the_pages_files_is_served(api: Api) -> None:
    for path in ("/page/", "/page/nothing.js", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page/%00"):
        assert (await api("GET", path, by="ada")).status == 404, path
