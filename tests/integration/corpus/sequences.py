"""Several requests on one connection, and bodies that don't end where they should."""

from tests.integration.corpus.parts import BODY, HIDDEN, Case, head, plain, post_with, refused

_GET = head(b"GET /v1/models HTTP/1.1", b"host: gateway")
_GET_404 = head(b"GET /nothing HTTP/1.1", b"host: gateway")
_CHUNKED = post_with(b"transfer-encoding: chunked", body=b"1b\r\n%b\r\n0\r\n\r\n" % BODY)
_STRANGER = plain(body=b'{"model":"stranger","messages":[]}')
_BAD_JSON = plain(body=b'{"model":')
_CLOSE = plain(b"connection: close")
_LARGE = plain(body=b'{"model":"m","messages":["%b"]}' % (b"x" * 50_000))
_EMPTY = post_with(b"content-length: 0", body=b"")
_BAD = plain(b"a : b")

CASES = [
    Case("two", plain() * 2, 2),
    Case("five", plain() * 5, 5),
    Case("forty", plain() * 40, 40),
    Case(
        "of different paths",
        b"".join(
            plain(line=b"POST /v1/%b HTTP/1.1" % p)
            for p in (b"completions", b"embeddings", b"responses", b"messages")
        ),
        4,
    ),
    Case("with different lengths", b"".join(plain(body=BODY + b" " * n) for n in range(12)), 12),
    Case("with different fields", b"".join(plain(b"x-%d: %d" % (n, n)) for n in range(5)), 5),
    Case("a large body, then a small one", _LARGE + plain(), 2),
    Case("three, and CR LF behind each", (plain() + b"\r\n") * 3, 3),
    Case("unknown model between", plain() + _STRANGER + plain(), 2),
    Case("broken JSON between", plain() + _BAD_JSON + plain(), 2),
    Case("empty body between", plain() + _EMPTY + plain(), 2),
    Case("over the seam", plain() + _GET + plain(), 2),
    Case("over the seam at once", _GET + plain() + plain(), 2),
    Case("over the seam by chunks", plain() + _CHUNKED + plain() + _CHUNKED, 4),
    Case("many over the seam", plain() + (_GET + _GET_404 + plain()) * 6, 7),
    Case("upgrade, then plain", plain(b"connection: upgrade", b"upgrade: websocket") + plain(), 2),
    Case("expect between", plain() + plain(b"expect: 100-continue") + plain(), 3),
    Case("close in the middle", plain() + _CLOSE + plain(body=BODY + b" "), 2, resumes=False),
    Case("close over the seam", _GET + _CLOSE + plain(body=BODY + b" "), 1, resumes=False),
    Case(
        "GET with close in the middle",
        plain() + _GET[:-2] + b"connection: close\r\n\r\n" + plain(),
        1,
        resumes=False,
    ),
    Case(
        "HTTP/1.0 in the middle",
        plain() + plain(line=b"POST /v1/completions HTTP/1.0") + plain(),
        2,
        resumes=False,
    ),
    refused("bad, then good", _BAD + plain()),
    Case("good, then bad", plain() + _BAD + plain(), 1, resumes=False),
    Case("GET, then bad", _GET + _BAD + plain(), 0, resumes=False),
    Case(
        "two lengths in the second",
        plain() + plain(b"content-length: 5", body=BODY + HIDDEN),
        1,
        resumes=False,
    ),
    Case(
        "chunks and length in the second",
        plain() + plain(b"transfer-encoding: chunked", body=b"0\r\n\r\n" + HIDDEN),
        1,
        resumes=False,
    ),
    Case("a body with more than its length", plain() + BODY, 1, resumes=False),
    Case("a body with one byte more", plain() + b"x" + plain(), 1, resumes=False),
    Case("a request as body", plain(body=HIDDEN), 0),
    Case("half a head behind", plain() + plain()[:40], 1, resumes=False),
    Case(
        "an HTTP/2 preface behind", plain() + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 1, resumes=False
    ),
    Case(
        "over the limit behind",
        plain() + post_with(b"content-length: 40000000", body=BODY),
        1,
        resumes=False,
    ),
    # The body is short of its length: what comes behind is swallowed, never read as a request.
    refused("a body short by one byte", post_with(b"content-length: 28")),
    refused("a body short by most of it", post_with(b"content-length: 27", body=BODY[:3])),
    refused("a body short by all of it", post_with(b"content-length: 27", body=b"")),
    refused("a body that never ends", post_with(b"content-length: 5000", body=BODY)),
    refused(
        "chunks that never end", post_with(b"transfer-encoding: chunked", body=b"1388\r\n%b" % BODY)
    ),
]
