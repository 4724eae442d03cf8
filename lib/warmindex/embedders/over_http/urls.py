"""Base URLs and what is built from them. Pure.

    given                                              /embed goes to
    http://h/tei, http://h/tei/                        http://h/tei/embed

    given                                              /embeddings goes to
    http://h, http://h/, http://h/v1                   http://h/v1/embeddings
    http://h/team/v1, http://h/team/v1/embeddings      http://h/team/v1/embeddings
    https://h/openai/deployments/d?api-version=V       https://h/openai/deployments/d/embeddings
                                                           ?api-version=V

A base without a path is an OpenAI-compatible server at its root, and those have their
routes under /v1. Joining by a library would lose the prefix or corrupt the query.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import httpx

from warmindex.embedders.errors import MisconfiguredError

_EMBEDDINGS: Final = b"/embeddings"
_DEPLOYMENT: Final = re.compile(r"/openai/deployments/([^/]+)$")
_AZURE_HOST: Final = re.compile(r"\.(?:openai|cognitiveservices|services\.ai)\.azure\.com$")
# A key in a URL ends up in every log on the way.
_KEY_PARAMETERS: Final = frozenset(
    {"key", "api-key", "api_key", "apikey", "token", "access_token", "code", "subscription-key"}
)


@dataclass(frozen=True, slots=True)
class Base:
    """One base URL, without credentials. `name` is host and path, for people."""

    url: httpx.URL
    # The value of an Authorization header where the URL had user and password.
    basic: str = ""

    @property
    def name(self) -> str:
        return self.authority + self.path

    @property
    def authority(self) -> str:
        """host[:port], lower case; the port only where it is not the scheme's own."""
        return self.url.netloc.decode("ascii").lower()

    @property
    def path(self) -> str:
        """The path as it is sent, without a slash at its end."""
        return self.url.raw_path.partition(b"?")[0].rstrip(b"/").decode("ascii")


def split_urls(given: str | Iterable[str]) -> tuple[str, ...]:
    """Base URLs from one text, or several, with commas between."""
    texts = [given] if isinstance(given, str) else given
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def parse_base(text: str) -> Base:
    """Read one base URL. Raises MisconfiguredError, without quoting credentials."""
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise _bad_url(f"cannot be read ({error})") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise _bad_url("needs http:// or https:// and a host, as in http://127.0.0.1:8080")
    secret = [name for name in url.params if name.lower() in _KEY_PARAMETERS]
    if secret:
        raise _bad_url(f"has a key in its parameter {secret[0]!r}; give it as the API key")
    basic = ""
    if url.userinfo:
        pair = f"{url.username}:{url.password}".encode()
        basic = "Basic " + base64.b64encode(pair).decode("ascii")
    return Base(url.copy_with(username=None, password=None, fragment=None), basic)


def endpoint(base: Base, suffix: str) -> httpx.URL:
    """The base's path and query, with `suffix` ("/embed") behind the path."""
    path, mark, query = base.url.raw_path.partition(b"?")
    return base.url.copy_with(raw_path=path.rstrip(b"/") + suffix.encode("ascii") + mark + query)


def openai_base(base: Base) -> Base:
    """The base as the OpenAI form means it: with /v1 where there is no path, and without
    an /embeddings that was given along.
    """
    path, mark, query = base.url.raw_path.partition(b"?")
    path = path.rstrip(b"/").removesuffix(_EMBEDDINGS).rstrip(b"/") or b"/v1"
    return Base(base.url.copy_with(raw_path=path + mark + query), base.basic)


def identity_host(base: Base) -> str:
    """Where a model's name means something: host[:port], then the path unless it is /v1."""
    return base.authority if base.path in {"", "/v1"} else base.name


def azure_deployment(base: Base) -> str:
    """The deployment that an Azure base names; empty where it is none."""
    match = _DEPLOYMENT.search(base.path)
    return match[1] if match else ""


def is_azure(base: Base) -> bool:
    """Whether the key goes into Azure's own header."""
    return bool(azure_deployment(base)) or bool(_AZURE_HOST.search(base.url.host))


def _bad_url(problem: str) -> MisconfiguredError:
    return MisconfiguredError(f"the base URL {problem}", field="urls")
