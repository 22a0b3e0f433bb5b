"""The settings: every ``REJOINDER_*`` environment variable, typed, checked once at start."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from infra.eventstoredb_uri import masked_uri, parse_uri

PREFIX = "REJOINDER_"
MASK = "********"
POSTGRES = "postgres"
"""The event store in the database."""

Names = Annotated[tuple[str, ...], NoDecode]
"""A comma-separated list."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SettingsError(Exception):
    """A setting is wrong: one line that names the variable and does not repeat its value."""


class Settings(BaseSettings):
    """What a process was told; read it with `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    host: str = "127.0.0.1"
    port: int = Field(default=8400, ge=0, le=65535)
    data_dir: Path = Path(".rejoinder")
    database_url: SecretStr | None = None
    event_store: SecretStr = SecretStr(POSTGRES)
    stream_prefix: str = ""
    model: str = "demo"
    compaction_model: str | None = None
    model_api_base: str | None = None
    model_api_key: SecretStr | None = None
    tools: Names = ()
    hooks: Names = ()
    projections: Names = ()
    projection_upgrade: Literal["auto", "refuse", "ignore"] = "auto"
    api_keys_file: Path | None = None
    cors_origins: Names = ()
    approval_timeout_s: Seconds = 86400
    audit: Literal["off", "on"] = "off"
    audit_ttl_s: float = Field(default=604_800, ge=60, allow_inf_nan=False)
    worker_concurrency: int = Field(default=64, ge=1, le=10_000)
    max_body_bytes: int = Field(default=1024 * 1024, ge=1024)
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"

    @field_validator("tools", "hooks", "projections", "cors_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part for item in value.split(",") if (part := item.strip())) if isinstance(value, str) else value

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not origin.startswith(("http://", "https://")) or origin.count("/") != 2 for origin in value):
            raise ValueError("must list origins such as https://app.example.org, without a path")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @field_validator("database_url")
    @classmethod
    def _is_conninfo(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                conninfo_to_dict(value.get_secret_value())
            except ProgrammingError:
                raise ValueError("must be a PostgreSQL connection string, postgresql://user@host/database") from None
        return value

    @field_validator("event_store")
    @classmethod
    def _is_store(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() != POSTGRES:
            try:
                parse_uri(value.get_secret_value())
            except ValueError as error:
                raise ValueError(f"must be {POSTGRES}, or a connection string of EventStoreDB: it {error}") from None
        return value

    @field_validator("stream_prefix")
    @classmethod
    def _can_begin_a_name(cls, value: str) -> str:
        if not re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63})?", value):
            raise ValueError("takes up to 64 letters, digits, dashes, dots and underscores, such as staging-")
        return value

    @model_validator(mode="after")
    def _keeps_strangers_out(self) -> Self:
        if self.api_keys_file is None and not is_loopback(self.host):
            raise ValueError(
                f"{PREFIX}HOST is open to other machines: set {PREFIX}API_KEYS_FILE "
                "(see `rejoinder keys create`), or listen on 127.0.0.1"
            )
        return self

    def masked(self) -> dict[str, object]:
        """Return what is in force by the names of the variables, JSON values, without passwords and keys."""
        secret = {"database_url", "event_store", "model_api_key"}
        values: dict[str, object] = self.model_dump(mode="json", exclude=secret)
        if self.database_url is not None:
            parts = conninfo_to_dict(self.database_url.get_secret_value())
            shown = {name: MASK if "password" in name else str(value) for name, value in parts.items()}
            values["database_url"] = make_conninfo(**shown)
        store = self.event_store.get_secret_value()
        values["event_store"] = store if store == POSTGRES else masked_uri(store, MASK)
        if self.model_api_key is not None:
            values["model_api_key"] = MASK
        return {variable(name): values.get(name) for name in type(self).model_fields}


def load_settings(**overrides: object) -> Settings:
    """Read the environment; `overrides` (from the command line, by field name) win. Raises `SettingsError`."""
    given: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as exc:
        problem = exc.errors(include_input=False, include_url=False)[0]
        message = problem["msg"].removeprefix("Value error, ")
        name = f"{variable(str(problem['loc'][0]))}: " if problem["loc"] else ""
        raise SettingsError(f"{name}{message}") from None


def variable(field: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + field.upper()


def is_loopback(host: str) -> bool:
    """Say whether a listen address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
