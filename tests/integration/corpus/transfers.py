"""Transfer-Encoding, with and without a length beside it, and chunks in every odd form."""

from tests.integration.corpus.parts import BODY, HIDDEN, Case, length, post_with, refused

_CHUNKED = b"transfer-encoding: chunked"
_N = len(BODY)
_LAST = b"0\r\n\r\n"
_CHUNKS = b"%x\r\n%b\r\n" % (_N, BODY) + _LAST


def _te(value: bytes, body: bytes = _CHUNKS) -> bytes:
    return post_with(b"transfer-encoding:" + value, body=body)


def _chunks(body: bytes) -> bytes:
    return post_with(_CHUNKED, body=body)


def _sized(size: bytes, data: bytes = BODY) -> bytes:
    """One chunk whose size is written as `size`."""
    return _chunks(size + b"\r\n" + data + b"\r\n" + _LAST)


_FIELDS = [
    Case("plain", _te(b" chunked"), 1),
    Case("capitals", _te(b" Chunked"), 1),
    Case("no space", _te(b"chunked"), 1),
    Case("tab before", _te(b"\tchunked"), 1),
    Case("spaces behind", _te(b" chunked  "), 1),
    Case("name in capitals", post_with(b"TRANSFER-ENCODING: chunked", body=_CHUNKS), 1),
    refused("length and chunked", post_with(length(_CHUNKS), _CHUNKED, body=_CHUNKS + HIDDEN)),
    refused("chunked and length", post_with(_CHUNKED, length(_CHUNKS), body=_CHUNKS + HIDDEN)),
    refused("length short of the chunks", post_with(b"content-length: 4", _CHUNKED, body=_CHUNKS)),
    refused(
        "length beyond the chunks", post_with(length(_LAST + HIDDEN), _CHUNKED, body=_LAST + HIDDEN)
    ),
    refused("identity", _te(b" identity", HIDDEN)),
    refused(
        "identity and length",
        post_with(b"transfer-encoding: identity", length(HIDDEN), body=HIDDEN),
    ),
    Case("identity, chunked", _te(b" identity, chunked"), 1),
    refused("chunked, identity", _te(b" chunked, identity")),
    refused("gzip", _te(b" gzip", HIDDEN)),
    Case("gzip, chunked", _te(b" gzip, chunked"), 1),
    refused("chunked, gzip", _te(b" chunked, gzip")),
    refused("chunked, chunked", _te(b" chunked, chunked")),
    Case("chunked behind a comma", _te(b" ,chunked"), 1),
    refused("chunked before a comma", _te(b" chunked,")),
    refused("a letter before", _te(b" xchunked", _CHUNKS + HIDDEN)),
    refused("a letter behind", _te(b" chunkedx", _CHUNKS + HIDDEN)),
    refused("a parameter", _te(b" chunked;q=1", _CHUNKS + HIDDEN)),
    refused("in quotes", _te(b' "chunked"', _CHUNKS + HIDDEN)),
    refused("vertical tab before", _te(b" \x0bchunked", _CHUNKS + HIDDEN)),
    refused("NUL behind", _te(b" chunked\0", _CHUNKS + HIDDEN)),
    refused("empty", _te(b"", _CHUNKS + HIDDEN)),
    Case("empty beside a length", post_with(b"transfer-encoding:", length()), 1),
    refused("twice chunked", post_with(_CHUNKED, _CHUNKED, body=_CHUNKS + HIDDEN)),
    refused(
        "chunked, then identity", post_with(_CHUNKED, b"transfer-encoding: identity", body=_CHUNKS)
    ),
    refused(
        "identity, then chunked", post_with(b"transfer-encoding: identity", _CHUNKED, body=_CHUNKS)
    ),
    refused("folded", _te(b"\r\n chunked", _CHUNKS + HIDDEN)),
    refused(
        "in the fold of another", post_with(b"a: b", b" transfer-encoding: chunked", body=_CHUNKS)
    ),
    refused("space before the colon", post_with(b"transfer-encoding : chunked", body=_CHUNKS)),
    refused("tab before the colon", post_with(b"transfer-encoding\t: chunked", body=_CHUNKS)),
    refused("behind a bare LF", post_with(b"a: b\ntransfer-encoding: chunked", body=_CHUNKS)),
    refused("behind a bare CR", post_with(b"a: b\rtransfer-encoding: chunked", body=_CHUNKS)),
    refused(
        "behind a bare CR, and a length",
        post_with(b"a: b\rtransfer-encoding: chunked", length(), body=BODY),
    ),
    Case("an underscore in the name", post_with(b"transfer_encoding: chunked", length()), 1),
    Case("TE beside a length", post_with(b"te: trailers", length()), 1),
    Case(
        "in HTTP/1.0",
        post_with(_CHUNKED, body=_CHUNKS, line=b"POST /v1/chat/completions HTTP/1.0"),
        1,
        resumes=False,
    ),
]

_BODIES = [
    Case(
        "two chunks", _chunks(b"5\r\n%b\r\n%x\r\n%b\r\n" % (BODY[:5], _N - 5, BODY[5:]) + _LAST), 1
    ),
    Case("a chunk for each byte", _chunks(b"".join(b"1\r\n%c\r\n" % c for c in BODY) + _LAST), 1),
    Case("capitals in a size", _sized(b"1B"), 1),
    Case("leading zeros in a size", _sized(b"0001b"), 1),
    Case("many leading zeros", _sized(b"0" * 14 + b"1b"), 1),
    Case("an extension", _sized(b"1b;a=b"), 1),
    Case("an extension in quotes", _sized(b'1b;a="b c"'), 1),
    Case("extensions without value", _sized(b"1b;a;b"), 1),
    Case("several zeros as last chunk", _chunks(_CHUNKS[: -len(_LAST)] + b"000\r\n\r\n"), 1),
    Case("an extension of the last chunk", _chunks(_CHUNKS[: -len(_LAST)] + b"0;a=b\r\n\r\n"), 1),
    Case("a trailer", _chunks(_CHUNKS[:-2] + b"x-sum: 1\r\n\r\n"), 1),
    Case("two trailers", _chunks(_CHUNKS[:-2] + b"x-sum: 1\r\nx-more: 2\r\n\r\n"), 1),
    Case(
        "announced trailer",
        post_with(b"trailer: x-sum", _CHUNKED, body=_CHUNKS[:-2] + b"x-sum: 1\r\n\r\n"),
        1,
    ),
    refused("a length as trailer", _chunks(_CHUNKS[:-2] + b"content-length: 5\r\n\r\n")),
    Case("no chunk", _chunks(_LAST), 0),
    refused(
        "an encoding as trailer", _chunks(_CHUNKS[:-2] + b"transfer-encoding: chunked\r\n\r\n")
    ),
    refused("a folded trailer", _chunks(_CHUNKS[:-2] + b"x-sum: 1\r\n 2\r\n\r\n")),
    refused("0x in a size", _sized(b"0x1b")),
    refused("plus in a size", _sized(b"+1b")),
    refused("minus in a size", _sized(b"-1b")),
    refused("space before a size", _sized(b" 1b")),
    refused("space behind a size", _sized(b"1b ")),
    refused("tab behind a size", _sized(b"1b\t")),
    refused("no size", _sized(b"")),
    refused("no hexadecimal size", _sized(b"xyz")),
    refused("NUL behind a size", _sized(b"1b\0")),
    refused("underscore in a size", _sized(b"1_b")),
    refused("a size beyond 64 bits", _sized(b"1" + b"0" * 16)),
    refused("LF in an extension", _sized(b"1b;a\nb")),
    refused("CR in an extension", _sized(b"1b;a\rb")),
    refused("LF alone behind a size", _chunks(b"1b\n%b\r\n" % BODY + _LAST)),
    refused("CR alone behind a size", _chunks(b"1b\r%b\r\n" % BODY + _LAST)),
    refused("LF alone behind the data", _chunks(b"1b\r\n%b\n" % BODY + _LAST)),
    refused("nothing behind the data", _chunks(b"1b\r\n%b" % BODY + _LAST)),
    refused("data longer than its size", _chunks(b"5\r\n%b\r\n" % BODY + _LAST)),
    refused("data shorter than its size", _chunks(b"1c\r\n%b\r\n" % BODY + _LAST)),
    refused("another request for a last chunk", _chunks(b"1b\r\n%b\r\n" % BODY + HIDDEN)),
]

CASES = [
    *(Case(f"encoding {c.name}", c.wire, c.reaches, c.resumes) for c in _FIELDS),
    *(Case(f"chunks with {c.name}", c.wire, c.reaches, c.resumes) for c in _BODIES),
]
