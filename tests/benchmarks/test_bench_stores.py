"""The benchmark of the stores runs: a short form of it, whose rates say nothing."""

from __future__ import annotations

from tests.benchmarks.bench_stores import compare, table


async def test_both_stores_are_measured_side_by_side(postgres_server: str) -> None:
    found = await compare(postgres_server, 100)
    postgres, eventstoredb = found.values()
    assert list(postgres) == list(eventstoredb) == ["appended", "read", "loaded", "subscribed", "folded"]
    assert all(rate > 0 for rates in found.values() for rate in rates.values())
    assert table(found, 100).row_count == 2
