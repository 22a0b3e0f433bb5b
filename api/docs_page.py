"""The documentation page: the OpenAPI document as plain HTML, which needs no script and no other server."""

from __future__ import annotations

import json
import re
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_REFERENCE = re.compile(r"&quot;#/components/schemas/(\w+)&quot;")
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8884; border-radius: 4px; }
article { border-top: 1px solid #8884; padding: .6rem 0; }
h3 { margin: .4rem 0; } h3 b { display: inline-block; min-width: 4.5rem; color: #0a7d4f; }
td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
"""


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI document that `api.openapi` made."""
    info = document["info"]
    return "".join(
        (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])} API</title>",
            f"<style>{_STYLE}</style><h1>{escape(info['title'])} API</h1><p>{escape(info['description'])}</p>",
            "<p>Send <code>Authorization: Bearer KEY</code> where the server has keys. Errors are "
            "<a href='#Problem'>problems</a>. The same as <a href=openapi.json>openapi.json</a>.</p>",
            *_operations(document),
            "<h2>Schemas</h2>",
            *(
                f"<article><h3 id='{escape(name)}'>{escape(name)}</h3>{_json(schema)}</article>"
                for name, schema in sorted(document["components"]["schemas"].items())
            ),
            "</html>",
        )
    )


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    group = None
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if group != (group := operation["tags"][0]):
                yield f"<h2>{escape(group.replace('_', ' ').capitalize())}</h2>"
            yield f"<article><h3><b>{method.upper()}</b> <code>{escape(path)}</code></h3>"
            yield f"<p>{escape(operation['summary'])} {escape(operation.get('description', ''))}</p>"
            yield from _parameters(operation["parameters"])
            if body := operation.get("requestBody"):
                yield f"<p>Body {_schema(body['content']['application/json']['schema'])}"
            for status, answer in operation["responses"].items():
                for media_type, content in answer.get("content", {}).items():
                    yield f"<p>Answer {status} <code>{escape(media_type)}</code> {_schema(content['schema'])}"
            yield "</article>"


def _parameters(parameters: list[dict[str, Any]]) -> Iterator[str]:
    if parameters:
        rows = (
            f"<tr><td><code>{escape(item['name'])}</code><td>{item['in']}{' (required)' if item['required'] else ''}"
            f"<td><code>{escape(json.dumps(item['schema']))}</code>"
            for item in parameters
        )
        yield f"<table>{''.join(rows)}</table>"


def _schema(schema: Mapping[str, Any]) -> str:
    if not schema:
        return ""
    if schema.keys() == {"$ref"}:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    return _json(schema)


def _json(schema: Any) -> str:
    text = escape(json.dumps(schema, indent=2))
    return f"<pre>{_REFERENCE.sub(_link, text)}</pre>"


def _link(reference: re.Match[str]) -> str:
    return f"&quot;<a href='#{reference[1]}'>{reference[1]}</a>&quot;"
