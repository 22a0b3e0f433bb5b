"""The turn that the storage benchmark repeats, for us and for the peer alike: 3.1 kB of text that compresses badly."""

from __future__ import annotations

import random
from typing import NamedTuple

ALPHABET = "etaoinshrdlucmfwypvbgkqjxz"


class TurnTexts(NamedTuple):
    """What is said in a turn: a user's message, a call's argument, its 2 kB result, and the reply."""

    message: str
    argument: str
    result: str
    reply: str


def turn_texts(turn: int) -> TurnTexts:
    """Return the texts of a turn, the same for the same number."""
    chance = random.Random(turn)
    return TurnTexts(_words(chance, 400), _words(chance, 100), _words(chance, 2_000), _words(chance, 600))


def _words(chance: random.Random, characters: int) -> str:
    words, length = [], 0
    while length < characters:
        word = "".join(chance.choices(ALPHABET, k=chance.randint(2, 10)))
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:characters]
