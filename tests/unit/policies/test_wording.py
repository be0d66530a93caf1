"""What a problem shows of a value, a place and a misspelling."""

import pytest

from policies.wording import did_you_mean, dotted, presentable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("http://gpu1:8000/x", "http://gpu1:8000/x"),
        ("http://user:secret@gpu1:8000", "http://***@gpu1:8000"),
        ("http://user:sec/ret@gpu1:8000", "http://***@gpu1:8000"),
        ("http://user:sec@ret@gpu1", "http://***@gpu1"),
        ("user:secret@gpu1", "***@gpu1"),
        ("http://gpu1/?key=secret", "http://gpu1/?***"),
        ("two\nlines\x00", "two\\nlines\\x00"),
        ("a" * 100, "a" * 79 + "…"),
    ],
)
def test_a_value_is_shown_on_a_line_without_what_is_secret_in_a_url(text, shown):
    assert presentable(text) == shown


def test_a_path_is_dotted():
    assert dotted(("pools", "chat", "workers", 0, "url")) == "pools.chat.workers[0].url"
    assert dotted((0, "a")) == "[0].a"
    assert dotted(()) == ""


def test_only_a_close_word_is_suggested():
    assert did_you_mean("Listn", ["data", "listen"]) == 'did you mean "listen"?'
    assert did_you_mean("redis", ["data", "listen"]) == ""


def test_a_word_that_is_held_whole_is_nearer_than_one_that_looks_alike():
    known = ["connect", "drain_timeout"]
    assert did_you_mean("connect_timeout", known) == 'did you mean "connect"?'
