"""The settings and their errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.settings import SettingsError, load_settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("REJOINDER_")]:
        monkeypatch.delenv(name)


def test_the_defaults_are_those_that_are_documented() -> None:
    assert load_settings().masked() == {
        "REJOINDER_HOST": "127.0.0.1",
        "REJOINDER_PORT": 8400,
        "REJOINDER_DATA_DIR": ".rejoinder",
        "REJOINDER_DATABASE_URL": None,
        "REJOINDER_EVENT_STORE": "postgres",
        "REJOINDER_STREAM_PREFIX": "",
        "REJOINDER_MODEL": "demo",
        "REJOINDER_COMPACTION_MODEL": None,
        "REJOINDER_MODEL_API_BASE": None,
        "REJOINDER_MODEL_API_KEY": None,
        "REJOINDER_TOOLS": [],
        "REJOINDER_HOOKS": [],
        "REJOINDER_PROJECTIONS": [],
        "REJOINDER_PROJECTION_UPGRADE": "auto",
        "REJOINDER_API_KEYS_FILE": None,
        "REJOINDER_CORS_ORIGINS": [],
        "REJOINDER_APPROVAL_TIMEOUT_S": 86400,
        "REJOINDER_AUDIT": "off",
        "REJOINDER_AUDIT_TTL_S": 604800,
        "REJOINDER_WORKER_CONCURRENCY": 64,
        "REJOINDER_MAX_BODY_BYTES": 1048576,
        "REJOINDER_LOG_FORMAT": "text",
        "REJOINDER_LOG_LEVEL": "INFO",
    }


def test_variables_are_read_and_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_PORT", "9000")
    monkeypatch.setenv("REJOINDER_TOOLS", "tools/mail.py, shop.tools:all ,")
    monkeypatch.setenv("REJOINDER_LOG_LEVEL", "debug")
    monkeypatch.setenv("REJOINDER_MODEL", "")

    settings = load_settings(port=0, host=None)

    assert (settings.port, settings.host) == (0, "127.0.0.1")
    assert settings.tools == ("tools/mail.py", "shop.tools:all")
    assert settings.log_level == "DEBUG"
    assert settings.model == "demo", "an empty variable is one that is not set"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REJOINDER_PORT", "many-secrets"),
        ("REJOINDER_PORT", "65536"),
        ("REJOINDER_APPROVAL_TIMEOUT_S", "-1"),
        ("REJOINDER_APPROVAL_TIMEOUT_S", "nan"),
        ("REJOINDER_WORKER_CONCURRENCY", "0"),
        ("REJOINDER_DATABASE_URL", "mysql://ada:secrets@db/rejoinder"),
        ("REJOINDER_EVENT_STORE", "esdb://admin:secrets@localhost:2113?nope=secrets"),
        ("REJOINDER_EVENT_STORE", "esdb://admin:secrets@localhost:2113?tls=false"),
        ("REJOINDER_EVENT_STORE", "esdb://admin:pass/secrets@localhost"),
        ("REJOINDER_STREAM_PREFIX", "$secrets"),
        ("REJOINDER_EVENT_STORE", "kafka-secrets"),
        ("REJOINDER_CORS_ORIGINS", "https://app.example.org/secrets"),
        ("REJOINDER_LOG_LEVEL", "loud-secrets"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_variable_and_not_the_value(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(SettingsError) as raised:
        load_settings()

    message = str(raised.value)
    assert message.startswith(f"{name}: ")
    assert "secrets" not in message
    assert "\n" not in message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_p2_an_address_that_others_reach_is_refused_without_keys(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    with pytest.raises(SettingsError, match="REJOINDER_API_KEYS_FILE"):
        load_settings(host=host)

    monkeypatch.setenv("REJOINDER_API_KEYS_FILE", "keys.json")
    assert load_settings(host=host).api_keys_file == Path("keys.json")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.4.0", "::1"])
def test_p2_a_loopback_address_needs_no_keys(host: str) -> None:
    assert load_settings(host=host).host == host


@pytest.mark.parametrize(
    "url", ["postgresql://ada:s3cret@db.example.org:5432/chat", "host=db.example.org user=ada password='s3cret'"]
)
def test_masked_settings_show_where_but_no_secret(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("REJOINDER_DATABASE_URL", url)
    monkeypatch.setenv("REJOINDER_MODEL_API_KEY", "s3cret")

    masked = str(load_settings().masked())

    assert "s3cret" not in masked
    assert "db.example.org" in masked
    assert "s3cret" not in repr(load_settings())
