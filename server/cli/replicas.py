"""`deep-agent-mcp replicas`: shows the servers that share a journal."""

from __future__ import annotations

import json

import click

from .state import with_settings

__all__ = ["replicas"]


@click.command()
@click.option("--state-dir", metavar="DIR", help="Where this command keeps its lock.")
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.option("--journal", metavar="URL", help="The journal that the servers share.")
@click.option("--journal-url-file", metavar="FILE", help="Read the journal's URL from FILE.")
@click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def replicas(as_json: bool, **flags: str | None) -> None:
    """Show the servers that share a journal, since when, and what each works on."""
    from ..operations.replica_listing import list_replicas

    answer = with_settings({**flags, "replicas": "true"}, list_replicas)
    click.echo(json.dumps(answer.data, indent=2) if as_json else answer.text)
