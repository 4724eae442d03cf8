"""Who is calling, and what that allows.

    role       may
    --------   ------------------------------------------------------------------
    reader     fetch, search, look up, watch, list
    producer   what a reader may, and publish, report, claim
    operator   what a producer may, and see metrics and the page for people

A principal is of one tenant, or of all. What it may not see is answered the same whether it is
there or not: the tenant is checked before anything is looked up.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from warmindex.errors import ForbiddenError


class Role(IntEnum):
    """What a credential is for; a higher one includes the lower ones."""

    READER = 1
    PRODUCER = 2
    OPERATOR = 3


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller. `tenant_id` None is all tenants; `name` is for logs."""

    name: str
    tenant_id: str | None
    role: Role


# Where no credentials are asked for, everybody may do everything.
EVERYONE: Final = Principal("everyone", None, Role.OPERATOR)

_CURRENT: ContextVar[Principal] = ContextVar("principal", default=EVERYONE)


def current() -> Principal:
    """The caller of the call that is being answered."""
    return _CURRENT.get()


def enter(principal: Principal) -> None:
    """From here on, in this task, the caller is `principal`."""
    _CURRENT.set(principal)


def require_role(principal: Principal, role: Role) -> None:
    """Raise ForbiddenError unless the principal has at least this role."""
    if principal.role < role:
        raise ForbiddenError(
            f"the credential {principal.name!r} is a {principal.role.name.lower()}'s; this call "
            f"needs a {role.name.lower()}'s"
        )


def allow_tenant(tenant_id: str, field: str) -> None:
    """Raise ForbiddenError unless the caller may see and touch a tenant."""
    principal = _CURRENT.get()
    if principal.tenant_id is not None and principal.tenant_id != tenant_id:
        raise ForbiddenError(
            f"{field} is not the tenant of the credential {principal.name!r}: name your own, an "
            "empty one is the default tenant",
            field=field,
        )
