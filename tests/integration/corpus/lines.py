"""Odd request lines and targets, and what isn't HTTP at all."""

from tests.integration.corpus.parts import BODY, HIDDEN, Case, head, plain, refused

_TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(190))


def _line(line: bytes, body: bytes = BODY) -> bytes:
    return plain(body=body, line=line)


def _target(target: bytes) -> bytes:
    return _line(b"POST %b HTTP/1.1" % target)


def _bare(method: bytes, target: bytes) -> bytes:
    return head(b"%b %b HTTP/1.1" % (method, target), b"host: gateway")


_LINES = [
    refused("a lower-case method", _line(b"post /v1/chat/completions HTTP/1.1")),
    refused("a capitalised method", _line(b"Post /v1/chat/completions HTTP/1.1")),
    refused("an unknown method", _line(b"FETCH /v1/chat/completions HTTP/1.1")),
    refused("a method that begins like POST", _line(b"POSTS /v1/chat/completions HTTP/1.1")),
    refused("a very long method", _line(b"P" * 3000 + b" /v1/chat/completions HTTP/1.1")),
    refused("a method with NUL", _line(b"PO\0ST /v1/chat/completions HTTP/1.1")),
    refused("a tab for the first space", _line(b"POST\t/v1/chat/completions HTTP/1.1")),
    refused("a tab for the second space", _line(b"POST /v1/chat/completions\tHTTP/1.1")),
    Case("two spaces before the target", _line(b"POST  /v1/chat/completions HTTP/1.1"), 1),
    Case("two spaces behind the target", _line(b"POST /v1/chat/completions  HTTP/1.1"), 1),
    refused("a space before the method", _line(b" POST /v1/chat/completions HTTP/1.1")),
    refused("a space behind the version", _line(b"POST /v1/chat/completions HTTP/1.1 ")),
    refused("a bare CR behind the version", _line(b"POST /v1/chat/completions HTTP/1.1\r")),
    refused("LF alone", plain().replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n")),
    Case("no version", _line(b"POST /v1/chat/completions"), 1, resumes=False),
    refused("no target", _line(b"POST HTTP/1.1")),
    refused("a lower-case version", _line(b"POST /v1/chat/completions http/1.1")),
    refused("HTTP/1.10", _line(b"POST /v1/chat/completions HTTP/1.10")),
    refused("HTTP/01.1", _line(b"POST /v1/chat/completions HTTP/01.1")),
    refused("HTTP/1,1", _line(b"POST /v1/chat/completions HTTP/1,1")),
    refused("HTTP/1.2", _line(b"POST /v1/chat/completions HTTP/1.2")),
    Case("HTTP/2.0", _line(b"POST /v1/chat/completions HTTP/2.0"), 1, resumes=False),
    refused("HTTP/0.9", b"GET /v1/models\r\n\r\n"),
    refused("HTTPS/1.1", _line(b"POST /v1/chat/completions HTTPS/1.1")),
    Case("HTTP/1.0", _line(b"POST /v1/chat/completions HTTP/1.0"), 1, resumes=False),
    Case(
        "HTTP/1.0 with keep-alive",
        plain(b"connection: keep-alive", line=b"POST /v1/chat/completions HTTP/1.0"),
        1,
    ),
    Case("CR LF before", b"\r\n" + plain(), 1),
    Case("many CR LF before", b"\r\n" * 20 + plain(), 1),
    Case("LF before", b"\n" + plain(), 1),
    Case("CR before", b"\r" + plain(), 1),
    refused("a space before all", b" \r\n" + plain()),
    refused("NUL before", b"\0" + plain()),
    refused("a byte order mark before", b"\xef\xbb\xbf" + plain()),
]

_TARGETS = [
    Case("a query", _target(b"/v1/chat/completions?api-version=1&x=%20y"), 1),
    Case("an empty query", _target(b"/v1/chat/completions?"), 1),
    Case("a slash behind", _target(b"/v1/chat/completions/"), 1),
    Case("slashes behind", _target(b"/v1/chat/completions//"), 1),
    Case("a slash and a query", _target(b"/v1/chat/completions/?a=b"), 1),
    Case("slashes before", _target(b"//v1/chat/completions"), 0),
    Case("slashes inside", _target(b"/v1//chat/completions"), 0),
    Case("a dot", _target(b"/v1/./chat/completions"), 0),
    Case("two dots", _target(b"/v1/../v1/chat/completions"), 0),
    Case("two dots, encoded", _target(b"/v1/%2e%2e/v1/chat/completions"), 0),
    Case("an encoded letter", _target(b"/v1/%63hat/completions"), 0),
    Case("an encoded slash", _target(b"/v1%2fchat/completions"), 0),
    Case("a backslash", _target(b"/v1\\chat/completions"), 0),
    Case("a semicolon", _target(b"/v1/chat/completions;a=b"), 0),
    Case("a fragment", _target(b"/v1/chat/completions#a"), 0),
    Case("a fragment behind a query", _target(b"/v1/chat/completions?a#b"), 1),
    Case("capitals", _target(b"/V1/Chat/Completions"), 0),
    Case("an unknown path", _target(b"/v1/chat"), 1),
    Case("a path outside /v1", _target(b"/chat/completions"), 0),
    Case("a control path", _target(b"/v1/load_lora_adapter"), 0),
    Case("a control path below dots", _target(b"/v1/../sleep"), 0),
    Case("an absolute form", _target(b"http://gateway/v1/chat/completions"), 0),
    refused("high bytes", _target(b"/v1/chat/completions\xff")),
    refused("high bytes in a query", _target(b"/v1/chat/completions?\xff")),
    refused("NUL", _target(b"/v1/chat/completions\0")),
    refused("NUL in a query", _target(b"/v1/chat/completions?\0")),
    refused("a bare CR in a query", _target(b"/v1/chat/completions?a\rb")),
    refused("a tab in a query", _target(b"/v1/chat/completions?a\tb")),
    refused("no slash", _target(b"v1/chat/completions")),
    Case("a query of 4,000 bytes", _target(b"/v1/chat/completions?" + b"a" * 4000), 1),
    Case("a query of 9,000 bytes", _target(b"/v1/chat/completions?" + b"a" * 9000), 1),
    refused("a query of 33,000 bytes", _target(b"/v1/chat/completions?" + b"a" * 33000)),
]

_METHODS = [
    Case("GET of a hot path", _bare(b"GET", b"/v1/chat/completions"), 0),
    Case("GET of the models", _bare(b"GET", b"/v1/models"), 0),
    Case("GET of nothing", _bare(b"GET", b"/nothing"), 0),
    Case("GET with a body", _line(b"GET /v1/models HTTP/1.1", HIDDEN), 0),
    Case("PUT", _line(b"PUT /v1/chat/completions HTTP/1.1"), 0),
    Case("DELETE", _bare(b"DELETE", b"/v1/chat/completions"), 0),
    Case("OPTIONS", _bare(b"OPTIONS", b"/v1/chat/completions"), 0),
    Case("OPTIONS *", _bare(b"OPTIONS", b"*"), 0),
    Case("TRACE", _bare(b"TRACE", b"/v1/chat/completions"), 0),
    Case("SOURCE", _bare(b"SOURCE", b"/v1/chat/completions"), 0),
    Case("CONNECT", _bare(b"CONNECT", b"gateway:80"), 0),
    Case("CONNECT with a path", _bare(b"CONNECT", b"/v1/chat/completions"), 0),
]

_OTHERS = [
    refused("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(30)),
    refused("a TLS hello", _TLS_HELLO),
    refused("SSH", b"SSH-2.0-OpenSSH_9.7\r\n"),
    refused("Redis", b"*1\r\n$4\r\nPING\r\n"),
    refused("an inline command of Redis", b"PING\r\n\r\n"),
    refused("SMTP", b"EHLO gateway\r\n\r\n"),
    refused("SIP", b"INVITE sip:a@b SIP/2.0\r\nhost: x\r\n\r\n"),
    refused("an answer", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    refused("JSON", b'{"model":"m"}\r\n\r\n'),
    refused("NULs", bytes(100)),
    refused("high bytes", b"\xff" * 100),
    refused("a proxy preamble", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + plain()),
]

CASES = [
    *(Case(f"line with {c.name}", c.wire, c.reaches, c.resumes) for c in _LINES),
    *(Case(f"target with {c.name}", c.wire, c.reaches, c.resumes) for c in _TARGETS),
    *_METHODS,
    *(Case(f"instead of HTTP: {c.name}", c.wire, c.reaches, c.resumes) for c in _OTHERS),
]
