"""Odd header fields: their bytes, their number and size, and those with a meaning for the hop."""

from tests.integration.corpus.parts import (
    BODY,
    HIDDEN,
    Case,
    head,
    length,
    plain,
    post_with,
    refused,
)

_LINE = b"POST /v1/chat/completions HTTP/1.1"
_TYPE = b"content-type: application/json"
_BOTH = BODY + HIDDEN


def _hosts(*hosts: bytes) -> bytes:
    return head(_LINE, *(b"host:" + h for h in hosts), _TYPE, length()) + BODY


_BYTES = [
    Case("no space behind the colon", plain(b"a:b"), 1),
    Case("empty value", plain(b"a:"), 1),
    Case("spaces for a value", plain(b"a:    "), 1),
    Case("tabs around a value", plain(b"a:\tb\t"), 1),
    Case("a tab in a value", plain(b"a: b\tc"), 1),
    Case("latin-1 in a value", plain(b"a: caf\xe9"), 1),
    Case("UTF-8 in a value", plain("a: zwölf €".encode()), 1),
    Case("every high byte in a value", plain(b"a: " + bytes(range(0x80, 0x100))), 1),
    Case("every mark that a name may hold", plain(b"!#$%&'*+-.^_`|~09aZ: b"), 1),
    Case("colons in a value", plain(b"a: b:c: d"), 1),
    refused("a fold by space", plain(b"a: b\r\n c", body=_BOTH)),
    refused("a fold by tab", plain(b"a: b\r\n\tc", body=_BOTH)),
    refused("a fold at the first field", head(_LINE, b" a: b", b"host: x", length()) + BODY),
    refused("a fold of nothing", plain(b"a: b\r\n ", body=_BOTH)),
    refused("bare CR in a value", plain(b"a: b\rc", body=_BOTH)),
    refused("bare CR at the end of a value", plain(b"a: b\r", body=_BOTH)),
    refused("bare LF in a value", plain(b"a: b\nc: d", body=_BOTH)),
    refused("only LFs", plain(body=BODY).replace(b"\r\n", b"\n")),
    refused("LF for the empty line", head(_LINE, b"host: x", length())[:-2] + b"\n" + _BOTH),
    refused("CR LF LF", head(_LINE, b"host: x", length())[:-2] + b"\n\n" + _BOTH),
    refused("CR CR LF", head(_LINE, b"host: x", length())[:-2] + b"\r\r\n" + _BOTH),
    refused("NUL in a value", plain(b"a: b\0c", body=_BOTH)),
    refused("NUL in a name", plain(b"a\0b: c", body=_BOTH)),
    refused("^A in a value", plain(b"a: b\1c", body=_BOTH)),
    refused("ESC in a value", plain(b"a: \x1b[31m", body=_BOTH)),
    refused("DEL in a value", plain(b"a: b\x7fc", body=_BOTH)),
    refused("vertical tab in a value", plain(b"a: b\x0bc", body=_BOTH)),
    refused("a high byte in a name", plain(b"caf\xe9: b", body=_BOTH)),
    refused("a space in a name", plain(b"a b: c", body=_BOTH)),
    refused("a space before the colon", plain(b"a : c", body=_BOTH)),
    refused("parentheses in a name", plain(b"a(b): c", body=_BOTH)),
    refused("quotes in a name", plain(b'"a": c', body=_BOTH)),
    refused("a slash in a name", plain(b"a/b: c", body=_BOTH)),
    refused("no name", plain(b": b", body=_BOTH)),
    refused("no colon", plain(b"ab", body=_BOTH)),
    refused("a second request line", plain(_LINE, body=_BOTH)),
]

_SIZES = [
    Case("a value of 2,000 bytes", plain(b"a: " + b"b" * 2000), 1),
    Case("a value of 7,900 bytes", plain(b"a: " + b"b" * 7900), 1),
    Case("a value of 8,190 bytes", plain(b"a: " + b"b" * 8190), 1),
    Case("a value of 30,000 bytes", plain(b"a: " + b"b" * 30000), 1),
    refused("a value of 33,000 bytes", plain(b"a: " + b"b" * 33000)),
    refused("a name of 33,000 bytes", plain(b"a" * 33000 + b": b")),
    Case(
        "forty fields of 1,000 bytes", plain(*(b"a%d: %b" % (i, b"b" * 1000) for i in range(40))), 1
    ),
    Case("128 fields", plain(*[b"a: b"] * 125), 1),
    refused("129 fields", plain(*[b"a: b"] * 126)),
    refused("1,000 fields", plain(*[b"a:"] * 1000)),
]

_HOSTS = [
    Case("with a port", _hosts(b" gateway:8080"), 1),
    Case("of IPv6", _hosts(b" [::1]:8080"), 1),
    Case("of anyone", _hosts(b" evil.example"), 1),
    Case("empty", _hosts(b""), 1),
    Case("with a space", _hosts(b" a b"), 1),
    Case("with a comma", _hosts(b" a, b"), 1),
    Case("with a slash", _hosts(b" a/b"), 1),
    Case("with a user", _hosts(b" u@a"), 1),
    refused("twice the same", _hosts(b" a", b" a")),
    refused("twice", _hosts(b" a", b" b")),
    refused("missing", _hosts()),
    Case("missing in HTTP/1.0", head(_LINE[:-1] + b"0", _TYPE, length()) + BODY, 1, resumes=False),
]

_TWICE = [
    refused("content-type", plain(b"content-type: text/plain")),
    refused("user-agent", plain(b"user-agent: a", b"User-Agent: b")),
    refused("server", plain(b"server: a", b"server: b")),
    refused("etag", plain(b"etag: a", b"etag: b")),
    refused("max-forwards", plain(b"max-forwards: 1", b"max-forwards: 2")),
    refused("content-range", plain(b"content-range: a", b"content-range: b")),
    refused("content-location", plain(b"content-location: a", b"content-location: b")),
    Case("x-request-id", plain(b"x-request-id: a", b"x-request-id: b"), 1),
    Case("authorization", plain(b"authorization: a", b"authorization: b"), 1),
    Case("cookie", plain(b"cookie: a=b", b"cookie: c=d"), 1),
    Case("accept", plain(b"accept: a/b", b"Accept: c/d"), 1),
    Case("traceparent", plain(b"traceparent: 00-1-1-00", b"traceparent: 00-2-2-00"), 1),
]

_HOP = [
    Case("Connection: close", plain(b"connection: close"), 1, resumes=False),
    Case("Connection: Close", plain(b"Connection: Close"), 1, resumes=False),
    Case("Connection: keep-alive", plain(b"connection: keep-alive"), 1),
    Case("Connection: Keep-Alive", plain(b"connection: Keep-Alive  "), 1),
    Case("Connection, empty", plain(b"connection:"), 1),
    Case("Connection: a field", plain(b"connection: x-drop", b"x-drop: 1", b"x-keep: 2"), 1),
    Case(
        "Connection: close, a field",
        plain(b"connection: close, X-Drop", b"x-drop: 1"),
        1,
        resumes=False,
    ),
    Case("Connection behind its field", plain(b"x-drop: 1", b"connection: x-drop"), 1),
    Case("Connection: content-length", plain(b"connection: content-length"), 1),
    Case("Connection: host, content-type", plain(b"connection: host, content-type"), 1),
    Case("Connection twice", plain(b"connection: keep-alive", b"connection: keep-alive"), 1),
    Case(
        "Connection: keep-alive and close",
        plain(b"connection: keep-alive", b"connection: close"),
        1,
        resumes=False,
    ),
    Case(
        "Connection: close and keep-alive",
        plain(b"connection: close", b"connection: keep-alive"),
        1,
        resumes=False,
    ),
    Case(
        "Connection: keep-alive, close", plain(b"connection: keep-alive, close"), 1, resumes=False
    ),
    Case(
        "Connection: close and a field called so",
        plain(b"connection: close", b"close: 1"),
        1,
        resumes=False,
    ),
    Case("Keep-Alive", plain(b"keep-alive: timeout=5"), 1),
    Case("Proxy-Connection: close", plain(b"proxy-connection: close"), 1, resumes=False),
    Case("Proxy-Connection: keep-alive", plain(b"proxy-connection: keep-alive"), 1),
    Case("Proxy-Authorization", plain(b"proxy-authorization: Basic eA=="), 1),
    Case("Upgrade: websocket", plain(b"connection: upgrade", b"upgrade: websocket"), 1),
    Case("Upgrade: tcp", plain(b"connection: upgrade", b"upgrade: tcp"), 1),
    Case(
        "Upgrade: h2c",
        plain(b"connection: upgrade, http2-settings", b"upgrade: h2c", b"http2-settings: AAMA"),
        1,
    ),
    Case("Upgrade without Connection", plain(b"upgrade: websocket"), 1),
    refused("an old websocket key", plain(b"sec-websocket-key1: a")),
    Case("Expect: 100-continue", plain(b"expect: 100-continue"), 1),
    Case("Expect: 100-Continue", plain(b"Expect: 100-Continue"), 1),
    Case("Expect: something", plain(b"expect: 200-ok"), 0),
    Case("Content-Encoding: identity", plain(b"content-encoding: identity"), 1),
    refused("Content-Encoding: br", plain(b"content-encoding: br")),
    refused("Content-Encoding: gzip of nothing packed", plain(b"content-encoding: gzip")),
    refused("Content-Encoding twice", plain(b"content-encoding: gzip", b"content-encoding: gzip")),
    Case("X-HTTP-Method-Override", plain(b"x-http-method-override: DELETE"), 1),
    Case(
        "Via and Forwarded",
        plain(b"via: 1.1 a", b"forwarded: for=1.2.3.4", b"x-forwarded-for: 1.2.3.4"),
        1,
    ),
    Case("a field of ours", plain(b"x-tiergate-worker: 1", b"X-Tiergate-Tier: offline"), 1),
    Case("no type", head(_LINE, b"host: x", length()) + BODY, 1),
    Case(
        "a type of text", head(_LINE, b"host: x", b"content-type: text/plain", length()) + BODY, 1
    ),
    Case(
        "multipart without a boundary",
        post_with(length()).replace(b"application/json", b"multipart/form-data"),
        0,
    ),
]

CASES = [
    *(Case(f"field with {c.name}", c.wire, c.reaches, c.resumes) for c in _BYTES),
    *(Case(f"head with {c.name}", c.wire, c.reaches, c.resumes) for c in _SIZES),
    *(Case(f"host {c.name}", c.wire, c.reaches, c.resumes) for c in _HOSTS),
    *(Case(f"twice {c.name}", c.wire, c.reaches, c.resumes) for c in _TWICE),
    *_HOP,
]
