"""The connection string of EventStoreDB, before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.eventstoredb_uri import masked_uri, parse_uri


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("esdb://ada:secret@db", "esdb://ada:secret@db"),
        ("esdb://ada:secret@a:2113,b:2113,c", "esdb://ada:secret@a:2113,b:2113,c"),
        ("esdb+discover://ada:secret@cluster.example.org", "esdb+discover://ada:secret@cluster.example.org"),
        ("kurrentdb://db:2113?tls=false", "esdb://db:2113?tls=false"),
        ("kdb+discover://ada:secret@db/?NodePreference=Leader", "esdb+discover://ada:secret@db?NodePreference=Leader"),
    ],
)
def test_both_names_of_the_server_are_taken_as_every_client_takes_them(text: str, uri: str) -> None:
    assert parse_uri(text).uri == uri


def test_a_password_is_meant_decoded() -> None:
    found = parse_uri("esdb://ada%40example.org:p%40ss%2Fw%3Ard@db")
    assert (found.user, found.password) == ("ada@example.org", "p@ss/w:rd")


def test_the_clients_are_given_a_password_that_they_cannot_take_for_a_server() -> None:
    found = parse_uri("esdb://ada:p@ss%@db:2113?tls=true")
    assert (found.uri, found.password) == ("esdb://ada:p%40ss%25@db:2113?tls=true", "p@ss%")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("postgresql://ada:secret@db", "begins with none of"),
        ("esdb://", "names no server"),
        ("esdb://ada:secret@db:port", "names no server"),
        ("esdb://ada:secret@db:65536", "names no server"),
        ("esdb+discover://ada:secret@a,b", "several hosts"),
        ("esdb://ada:sec/secret@db", "percent-encoded"),
        ("esdb://db", "lacks user and password"),
        ("esdb://ada@db", "lacks user and password"),
        ("esdb://ada:secret@db?Tls=false", "only over TLS"),
        ("esdb://ada:secret@db?tls=secret", "true or false"),
        ("esdb://ada:secret@db?KeepAliveInterval=secret", "no whole number"),
        ("esdb://ada:secret@db?MaxDiscoverAttempts=0", "above 0"),
        ("esdb://ada:[secret]@db", "percent-encoded"),
        ("esdb://ada:[secret@db", "percent-encoded"),
        ("esdb://ada:secret\u2100@db", "percent-encoded"),
        ("esdb://ada:secret@db?secret=1", "unknown option"),
        ("esdb://ada:secret@db?NodePreference=follower", "leader"),
        ("esdb://ada:secret@db?TlsVerifyCert=false", "tlscafile"),
        ("esdb://ada:secret@db?TlsCaFile=/nowhere/secret.pem", "tlscafile that is not there"),
        (f"esdb://ada:secret@db?UserCertFile={Path(__file__)}", "without the other"),
    ],
)
def test_what_is_wrong_is_said_without_repeating_it(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        parse_uri(text)
    assert "secret" not in str(refused.value)


def test_a_connection_string_is_shown_without_its_password() -> None:
    assert (
        masked_uri("esdb+discover://ada:sec@ret@db:2113?tls=true", "***") == "esdb+discover://ada:***@db:2113?tls=true"
    )
    assert masked_uri("esdb://db?tls=false", "***") == "esdb://db?tls=false"
