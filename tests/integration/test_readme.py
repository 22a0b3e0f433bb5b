"""What the README says, done."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from infra.settings import Settings, variable
from infra.tool_loader import load_tools

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_tools_of_the_readme_load(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n# my_tools.py\n(.*?)```", README, re.DOTALL)
    file = tmp_path / "my_tools.py"
    file.write_text(example)
    tools = load_tools([str(file)])
    assert tools.names == ("search", "send_email", "charge", "ask_user")
    gates = {tool.name: tool.gate for tool in tools}
    assert gates["send_email"] == "always"
    assert [tool.executor for tool in tools] == ["server", "server", "server", "human"]


def test_every_setting_of_the_readme_exists_with_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)
    known = Settings().masked()
    named = set(re.findall(r"REJOINDER_[A-Z_]+", README.partition("## Settings")[2].partition("\n## ")[0]))
    assert named <= known.keys()
    rows = re.findall(r"^\| `(REJOINDER_\w+)` \| `(\d+)` \|", README, re.MULTILINE)
    assert rows
    for name, default in rows:
        assert float(str(known[name])) == float(default), name


def test_what_the_readme_points_to_is_there() -> None:
    for path in re.findall(r"`(tests/\w+|\.ci/\w+|docker-compose\.yml)`", README):
        assert (ROOT / path).exists(), path
