"""What a reader may rely on in every module."""

from __future__ import annotations

import ast
import re
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

from domain.event_envelope import ConversationEvent
from domain.wire import ALL_TYPES

ROOT = Path(__file__).parents[2]
PACKAGES = ("domain", "commands", "projections", "infra", "api")
PRODUCT = sorted(chain.from_iterable((ROOT / package).rglob("*.py") for package in PACKAGES))
ALL = [*PRODUCT, *sorted((ROOT / "tests").rglob("*.py"))]
MOST_LINES = 400
SAYS_NOTHING = re.compile(r"(^|_)(utils?|helpers?|managers?|base|misc|common)$")
WAIVER = re.compile(r"#\s*(noqa|type:\s*ignore)")
EXPLAINED = re.compile(r"#\s*(noqa: [A-Z]+\d+(, [A-Z]+\d+)*|type: ignore\[[a-z-]+(, ?[a-z-]+)*\])\s+[#-] \w")


def named(modules: list[Path]) -> list[str]:
    return [str(module.relative_to(ROOT)) for module in modules]


def test_a_module_is_short_enough_to_be_read() -> None:
    assert named([one for one in PRODUCT if len(one.read_text("utf-8").splitlines()) > MOST_LINES]) == []


def test_a_module_says_in_one_sentence_what_it_is_for() -> None:
    first = {one: (ast.get_docstring(ast.parse(one.read_text("utf-8"))) or "").split("\n\n")[0] for one in PRODUCT}
    assert named([one for one, says in first.items() if not says.endswith(".")]) == []


def test_a_modules_name_says_what_is_in_it() -> None:
    assert (
        named([one for one in ALL if any(map(SAYS_NOTHING.search, one.relative_to(ROOT).with_suffix("").parts))]) == []
    )


def test_every_waiver_has_its_code_and_its_reason() -> None:
    waivers = [
        f"{one.relative_to(ROOT)}:{number}"
        for one in ALL
        if one != Path(__file__)
        for number, line in enumerate(one.read_text("utf-8").splitlines(), 1)
        if WAIVER.search(line) and not EXPLAINED.search(line)
    ]
    assert waivers == []


def test_no_other_distribution_owns_a_name_of_ours() -> None:
    owners = {package: set(packages_distributions().get(package, ())) - {"rejoinder"} for package in PACKAGES}
    assert owners == {package: set() for package in PACKAGES}


def test_every_event_names_its_wire_type_itself_and_each_another() -> None:
    own = ConversationEvent.__subclasses__()
    assert all("wire_type" in vars(one) for one in own)
    assert {one.wire_type: one for one in own} == ALL_TYPES
    assert len(own) == len(ALL_TYPES)


@pytest.mark.parametrize("event_type", ALL_TYPES.values(), ids=ALL_TYPES)
def test_l9_yesterdays_fact_loads_for_an_event_checks_types_alone(event_type: type[ConversationEvent]) -> None:
    validators = event_type.__pydantic_decorators__
    assert not any((validators.field_validators, validators.model_validators, validators.root_validators))
    assert not any(field.metadata for field in event_type.model_fields.values())
    assert event_type.model_config.get("extra") == "ignore"
    assert event_type.model_config.get("frozen") is True
