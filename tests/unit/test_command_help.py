"""What `--help` says is broken where the terminal ends, not where the source does."""

from __future__ import annotations

from api.main import COMMANDS, app


def test_each_paragraph_of_a_commands_help_is_one_line() -> None:
    told = {info.name: info.help or "" for info in app.registered_commands}

    assert told.keys() == COMMANDS.keys()
    for text in told.values():
        assert all("\n" not in paragraph and paragraph == paragraph.strip() for paragraph in text.split("\n\n"))
    assert [paragraph.split()[0] for paragraph in told["verify"].split("\n\n")] == ["Fold", "It", "With"]
