"""Base URLs: what is built from them, what they are called, and what they may not hold."""

from __future__ import annotations

import httpx
import pytest
from warmindex.embedders import MisconfiguredError
from warmindex.embedders.over_http.urls import (
    azure_deployment,
    endpoint,
    identity_host,
    is_azure,
    openai_base,
    parse_base,
    split_urls,
)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h", "http://h/embed"),
        ("http://h/", "http://h/embed"),
        ("http://h:8080", "http://h:8080/embed"),
        ("http://h/tei", "http://h/tei/embed"),
        ("http://h/tei/", "http://h/tei/embed"),
        ("http://h/a/b//", "http://h/a/b/embed"),
        ("http://h/a%2Fb/", "http://h/a%2Fb/embed"),
        ("http://h/tei?x=1", "http://h/tei/embed?x=1"),
        ("HTTP://H/T", "http://h/T/embed"),
        ("http://[::1]:8080/t", "http://[::1]:8080/t/embed"),
    ],
)
def test_a_prefix_is_kept(base: str, url: str):
    """The route goes behind the base's path, whether or not it ends in a slash."""
    assert str(endpoint(parse_base(base), "/embed")) == url


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h", "http://h/v1/embeddings"),
        ("http://h/", "http://h/v1/embeddings"),
        ("http://h/v1", "http://h/v1/embeddings"),
        ("http://h/v1/", "http://h/v1/embeddings"),
        ("http://h/v1/embeddings", "http://h/v1/embeddings"),
        ("http://h/team/v1", "http://h/team/v1/embeddings"),
        ("http://h/litellm", "http://h/litellm/embeddings"),
        (
            "https://r.example/openai/deployments/d1?api-version=2024-10-21",
            "https://r.example/openai/deployments/d1/embeddings?api-version=2024-10-21",
        ),
        (
            "https://r.example/openai/deployments/d1/?api-version=2024-10-21&x=y%20z",
            "https://r.example/openai/deployments/d1/embeddings?api-version=2024-10-21&x=y%20z",
        ),
    ],
)
def test_the_openai_route_is_built_once(base: str, url: str):
    """/v1 is added where there is no path, never twice, and a query stays a query."""
    assert str(endpoint(openai_base(parse_base(base)), "/embeddings")) == url


@pytest.mark.parametrize(
    ("base", "host"),
    [
        ("https://API.Example.com", "api.example.com"),
        ("https://api.example.com:443/v1", "api.example.com"),
        ("http://10.0.0.7:8000/v1/", "10.0.0.7:8000"),
        ("http://h/Team/v1", "h/Team/v1"),
        ("http://h/v1/embeddings", "h"),
        ("https://u:p@h/v1", "h"),
        (
            "https://r.example/openai/deployments/d1?api-version=V",
            "r.example/openai/deployments/d1",
        ),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_the_host_of_an_identity_is_where_a_name_means_something(base: str, host: str):
    """Host and port in lower case, then the path unless it is none or /v1."""
    assert identity_host(openai_base(parse_base(base))) == host


@pytest.mark.parametrize(
    ("base", "deployment", "azure"),
    [
        ("https://r.example/openai/deployments/d1?api-version=V", "d1", True),
        ("https://r.openai.azure.com/openai/v1", "", True),
        ("https://r.services.ai.azure.com/openai/v1", "", True),
        ("https://openai.azure.com.evil.example/v1", "", False),
        ("https://api.openai.com/v1", "", False),
    ],
)
def test_azure_is_known_by_its_address(base: str, deployment: str, azure: bool):
    """A deployment's path, or Azure's own host, takes the key in Azure's header."""
    read = openai_base(parse_base(base))
    assert azure_deployment(read) == deployment
    assert is_azure(read) is azure


def test_credentials_in_a_url_are_kept_out_of_it():
    """User and password become a header; neither the URL nor its name shows them."""
    base = parse_base("https://user:s3cret@h:9/p#part")
    assert base.basic == httpx.BasicAuth("user", "s3cret")._auth_header
    assert "s3cret" not in str(base.url) + base.name
    assert base.name == "h:9/p"


@pytest.mark.parametrize(
    "text",
    ["", "h:8080", "ftp://h", "http://", "//h", "http://h:port", "https://h/v1?key=s3cret",
     "https://h/v1?api-key=s3cret", "https://h?Code=s3cret"],
)  # fmt: skip
def test_what_is_no_base_url_is_refused(text: str):
    """Without scheme or host, or with a key inside, and never quoting the key."""
    with pytest.raises(MisconfiguredError) as caught:
        parse_base(text)
    assert caught.value.field == "urls"
    assert "s3cret" not in str(caught.value)


def test_several_urls_are_split():
    """Commas and repeated options both name several."""
    assert split_urls("http://a, http://b,,") == ("http://a", "http://b")
    assert split_urls(["http://a", "http://b,http://c"]) == ("http://a", "http://b", "http://c")
    assert split_urls("") == ()
