"""`keys`: make API keys for the keys file."""

from __future__ import annotations

from typing import Annotated

import typer

commands = typer.Typer(help="Make API keys.")

Tenant = Annotated[str, typer.Option(help="Whose data the key opens.")]
User = Annotated[str, typer.Option(help="Who acts by the key.")]
Roles = Annotated[list[str] | None, typer.Option("--role", help="approver or admin; may be repeated.")]


@commands.command()
def create(tenant: Tenant, user: User, role: Roles = None) -> None:
    """Print a new key, which is stored nowhere, and its entry for the keys file."""
    from infra.keys import create_key

    key, entry = create_key(tenant, user, role or ())
    print("The key, shown only now:")
    print(key)
    print("Its entry, for the JSON list in the file that REJOINDER_API_KEYS_FILE names:")
    print(entry.model_dump_json())
