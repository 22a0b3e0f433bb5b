"""`config`: the settings that are in force."""

from __future__ import annotations

import json


def config() -> None:
    """Print the effective settings as VARIABLE=value, without passwords and keys."""
    from infra.settings import load_settings

    for variable, value in load_settings().masked().items():
        print(f"{variable}={_written(value)}")


def _written(value: object) -> str:
    match value:
        case None:
            return ""
        case list():
            return ",".join(map(str, value))
        case str():
            return value
        case _:
            return json.dumps(value)
