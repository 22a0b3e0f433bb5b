"""Operating read models from the command line, beside a server that projects them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.support.program import Program, fetched, run

if TYPE_CHECKING:
    from pathlib import Path

WORDS = """
from projections.projection import Projection


def fold(rows, events):
    for event in events:
        if event.type == "user_msg":
            text = event.data["content"][0]["text"]
            {first}
            rows.put({{"seq": event.seq, "words": len(text.split())}})


WORDS = Projection(
    name="words", version=1, columns={{"seq": "int not null", "words": "int not null"}}, key=("seq",), fold=fold
)
"""
BROKEN = WORDS.format(first='assert "poison" not in text, text')
FIXED = WORDS.format(first="pass")


def standing(url: str, name: str) -> Any:
    return next(item for item in fetched(f"{url}/v1/projections")["items"] if item["name"] == name)


def test_r6_a_fixed_projection_takes_in_by_retry_what_it_had_parked(database_url: str, tmp_path: Path) -> None:
    module = tmp_path / "words.py"
    module.write_text(BROKEN, "utf-8")
    settings: dict[str, Any] = {"database_url": database_url, "projections": module}
    with Program("serve", "--port", "0", **settings) as server:
        url = server.url()
        paused = run("pause", "words", "usage", **settings)
        said = fetched(f"{url}/v1/conversations", {"message": {"content": "poison s3cret"}})
        held = standing(url, "words")
        resumed = run("resume", "words", "usage", **settings)
        while (parked := standing(url, "words"))["parked"] == 0:
            assert parked["position"] == 0 or parked["lag_events"] > 0
            time.sleep(0.05)
        table = run("projections", **settings)
        refused = run("retry", "words", **settings)
        rebuilt, verified = run("rebuild", "words", **settings), run("verify", "words", **settings)
        module.write_text(FIXED, "utf-8")
        retried = run("retry", "words", "usage", **settings)
        flows = standing(url, "words")

    assert (paused.exit_code, paused.stdout) == (0, "words is paused\nusage is paused")
    assert held["status"] == "paused"
    assert (resumed.exit_code, resumed.stdout) == (0, "words goes on\nusage goes on")
    assert parked["error"].startswith("parked at a user_msg: AssertionError: … … (words.py:")
    assert "words: parked at a user_msg: AssertionError" in table.stdout
    assert refused.exit_code == 1
    assert refused.stdout.splitlines()[0] == "words: 0 conversations flow again, 1 are parked"
    assert refused.stdout.splitlines()[1].startswith(f"  {said['conversation_id']} at event 2 (user_msg): Assert")
    assert (rebuilt.exit_code, rebuilt.stderr.splitlines()[-1]) == (
        0, "words: 1 conversations parked (see `projections` and `retry`)"
    )  # fmt: skip
    assert (verified.exit_code, verified.stdout.splitlines()[-1]) == (
        1, "words: 0 rows, as the log says; parked and left out: 1 (see `retry`)"
    )  # fmt: skip
    assert retried.stdout == (
        "words: 1 conversations flow again, 0 are parked\nusage: 0 conversations flow again, 0 are parked"
    )
    assert (retried.exit_code, flows["parked"], flows["error"]) == (0, 0, None)
    assert "s3cret" not in table.stdout + refused.stdout + refused.stderr


def test_a_read_model_that_there_is_not_is_wrong_usage(database_url: str) -> None:
    ended = run("pause", "nothing", database_url=database_url)

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("rejoinder: there is no read model 'nothing'; there are: agenda, commands, ")
