"""Addresses as people paste them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.addresses import is_loopback, listen_address, worker_url
from gateway.settings import Listen


@pytest.mark.parametrize(
    ("written", "listen"),
    [
        ("127.0.0.1:8080", Listen("127.0.0.1", 8080)),
        (":8080", Listen("", 8080)),
        ("0.0.0.0:80", Listen("0.0.0.0", 80)),  # noqa: S104  what is read
        ("[::1]:8080", Listen("::1", 8080)),
        ("[::]:8080", Listen("::", 8080)),
        ("[0:0:0:0:0:0:0:1]:1", Listen("::1", 1)),
        ("8080", Listen("127.0.0.1", 8080)),
        (8080, Listen("127.0.0.1", 8080)),
        ("Gateway.Example:0", Listen("gateway.example", 0)),
    ],
)
def test_a_listen_address_is_read(written, listen):
    assert listen_address(written) == listen
    assert listen_address(str(listen)) == listen


@pytest.mark.parametrize(
    "written",
    [
        *("", ":", "a", "a:b", "::1:80", "[::1]", "[x]:80", "a:65536", "a:-1", "a b:80", "70000"),
        *("http://a:80", "a:80/x", "a:٣", -1, 70000, True, 1.5, None, ["a"], {}),
    ],
)
def test_what_is_no_listen_address_is_refused(written):
    with pytest.raises(ValueError, match="must be"):
        listen_address(written)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "localhost."])
def test_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "::", "10.0.0.1", "gpu1", "localhost.example"])
def test_not_surely_loopback(host):
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://gpu1:8000", "http://gpu1:8000"),
        ("http://gpu1:8000/", "http://gpu1:8000"),
        ("http://gpu1:8000/v1", "http://gpu1:8000"),
        ("http://gpu1:8000/v1/", "http://gpu1:8000"),
        ("http://gpu1:8000//v1//", "http://gpu1:8000"),
        ("https://api.example/openai/v1", "https://api.example/openai"),
        ("https://api.example/v1/openai", "https://api.example/v1/openai"),
        ("HTTP://GPU1:80", "http://gpu1"),
        ("https://gpu1:443/v1", "https://gpu1"),
        ("https://gpu1:80", "https://gpu1:80"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("http://[0::1]", "http://[::1]"),
        ("http://llm_worker.internal.:8000", "http://llm_worker.internal.:8000"),
    ],
)
def test_a_worker_url_is_brought_to_one_form(written, url):
    assert worker_url(written) == url
    assert worker_url(url) == url


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("gpu1:8000", "must begin with http://"),
        ("ftp://gpu1", "must begin with http://"),
        ("//gpu1", "must begin with http://"),
        ("http://", "must name a host"),
        ("http:///v1", "must name a host"),
        ("http://:8000", "must name a host"),
        ("http://-a", "must name a host"),
        ("http://a,b", "must name a host"),
        ("http://gpu1:", "the port must be a number from 1 to 65535"),
        ("http://gpu1:0", "the port must be"),
        ("http://gpu1:65536", "the port must be"),
        ("http://gpu1:x", "the port must be"),
        ("http://[::1", "must be a URL such as"),
        ("http://[gpu1]:80", "must be a URL such as|must be an IPv6 address"),
        ("http://user:pw@gpu1", "put the worker's key under api_key"),
        ("http://user:p/w@gpu1", "put the worker's key under api_key"),
        ("http://gpu1?key=x", "must end before any"),
        ("http://gpu1/#x", "must end before any"),
        ("http://gpu1/v1/chat/completions", "without an endpoint"),
        ("http://gpu1/v1/models/", "without an endpoint"),
        ("http://gpu 1", "printable ASCII without spaces"),
        ("http://gpü", "printable ASCII"),
        ("http://gpu1\n", "printable ASCII"),
        ("", "must be a URL"),
        (8000, "must be a URL"),
        (None, "must be a URL"),
        ([], "must be a URL"),
    ],
)
def test_what_is_no_worker_url_is_refused_with_what_would_be_right(written, expected):
    with pytest.raises(ValueError, match=expected):
        worker_url(written)


@given(st.text(alphabet=st.sampled_from(list("http://[]:@?#%av1.-_ \n80é"))))
def test_any_text_is_brought_to_one_form_or_refused(text):
    for candidate in (text, f"http://{text}"):
        try:
            url = worker_url(candidate)
        except ValueError:
            continue
        assert worker_url(url) == url
        assert "@" not in url
        assert not url.endswith(("/", "/v1"))
