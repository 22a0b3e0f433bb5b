"""Full-text search: how words are made of what was said, and which conversations have those that are asked for.

The configuration is `simple`: words in lower case, with no language's endings cut off and none left out, so that all
languages are served alike. Han characters and kana, which are written without spaces, count as a word each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg import AsyncConnection

_SPACED: LiteralString = r"regexp_replace({}, '([\u2e80-\u9fff\uf900-\ufaff])', ' \1 ', 'g')"
INDEX: LiteralString = "using gin (words) with (gin_pending_list_limit = 512)"
"""News waits in a list of 512 kB: without one each row costs five times as much, a longer one is emptied too slowly."""


def words_column(text: LiteralString) -> LiteralString:
    """Return the definition of the column `words`, made of a text of other columns: of its first 100,000 characters.

    Of a megabyte of distinct words PostgreSQL would make none, but an error.
    """
    spaced = _SPACED.replace("{}", f"left({text}, 100000)")
    return f"words tsvector generated always as (to_tsvector('simple', {spaced})) stored"


_ASKED: LiteralString = f"websearch_to_tsquery('simple', {_SPACED.replace('{}', '%(q)s::text')})"

MOST_HITS = 5_000
# of a query that has no word that must occur no index finds anything: nor does this
_HITS: LiteralString = """
with hits as materialized (
    (select conversation_id from conversations where words @@ {asked} and {indexed} limit %(most)s)
    union all
    (select conversation_id from display_messages where words @@ {asked} and {indexed} limit %(most)s)
)
select (select count(*) from hits), array(
    select conversation_id from conversations where {visible} and conversation_id in (select conversation_id from hits)
)
"""
# no `exists`: PostgreSQL might then look for all messages of all conversations first
_HAS_IT: LiteralString = f"""(words @@ {_ASKED} or (
    select true from display_messages said
    where said.conversation_id = conversations.conversation_id and said.words @@ {_ASKED} limit 1
))"""


async def found(
    connection: AsyncConnection, condition: LiteralString, values: Mapping[str, Any], q: str
) -> tuple[LiteralString, dict[str, Any]]:
    """Narrow a condition on rows of ``conversations``, and its parameters, to where a title or one message has `q`.

    `q` is as people write it to search engines: words, "phrases", or, -without; nothing in it is an error. What is
    rare is looked up in the index over all tenants' messages; for what is not the caller's own are gone through,
    newest first, as a page of them is soon full.
    """
    values = {**values, "q": q, "most": MOST_HITS}
    hits = _HITS.format(asked=_ASKED, indexed=f"querytree({_ASKED}) not in ('', 'T')", visible=condition)
    row = await (await connection.execute(hits, values)).fetchone()
    assert row is not None  # it has no from
    if row[0] < MOST_HITS:
        return f"{condition} and conversation_id = any(%(hits)s)", {**values, "hits": row[1]}
    return f"{condition} and {_HAS_IT}", values
