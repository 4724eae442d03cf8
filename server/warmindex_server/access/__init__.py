"""Who may do what: credentials to principals, and principals to permissions.

token --hash--> token file --> principal (tenant or all, role)
call  --role needed--> allowed?        request --tenant named--> allowed?
"""

from __future__ import annotations

from warmindex_server.access.principal import (
    EVERYONE,
    Principal,
    Role,
    allow_tenant,
    current,
    require_role,
)
from warmindex_server.access.tokens import TokenFile

__all__ = [
    "EVERYONE",
    "Principal",
    "Role",
    "TokenFile",
    "allow_tenant",
    "current",
    "require_role",
]
