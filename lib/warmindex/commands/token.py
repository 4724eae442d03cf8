"""warmindex token: make a bearer token, and the line that a server keeps of it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from warmindex.tokens import new_token

ROLES = ("reader", "producer", "operator")


def add_to(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "token",
        help="make a bearer token",
        description="Make a bearer token. The token goes to stderr, once; the line for the "
        "server's token file, which has only its hash, goes to stdout: "
        "warmindex token --name gateway --tenant acme >> tokens",
    )
    command.add_argument("--name", required=True, help="who it is for; shown in logs")
    tenant = command.add_mutually_exclusive_group(required=True)
    tenant.add_argument("--tenant", help='the tenant it is good for; "" is the default one')
    tenant.add_argument("--all-tenants", action="store_true", help="it is good for all of them")
    command.add_argument("--role", choices=ROLES, default="producer", help="what it may do")
    command.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Print the token and its line."""
    token, digest = new_token()
    line = {
        "name": arguments.name,
        "sha256": digest,
        "tenant": None if arguments.all_tenants else arguments.tenant,
        "role": arguments.role,
    }
    print(json.dumps(line))
    print(token, file=sys.stderr)
    return 0
