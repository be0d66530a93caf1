"""Durations and sizes: what is read, what is refused, and that spelling and reading are inverse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.units import duration, duration_text, size, size_text


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("2s", 2.0),
        ("1.5h", 5400.0),
        ("24h", 86400.0),
        ("7d", 604800.0),
        ("1.5m", 90.0),
        ("250us", 0.00025),
        ("0.1s", 0.1),
        ("0s", 0.0),
        ("0", 0.0),
        (0, 0.0),
        (0.0, 0.0),
    ],
)
def test_a_duration_is_read_as_seconds(written, seconds):
    assert duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        *("", "5", "s", "5 s", "5sec", "5S", "-5s", "1h30m", ".5s", "5.s", "1e3s", "inf", "nan"),
        *("٣s", "5s\n", "0.0000001s", "9" * 40 + "s"),
        *(5, 1.5, -1, True, False, None, [], {}, float("nan")),
    ],
)
def test_what_is_no_duration_is_refused_with_an_example(written):
    with pytest.raises(ValueError, match=r"must be a duration with its unit, such as 500ms"):
        duration(written)


def test_a_duration_ends_at_ten_years():
    assert duration("3650d") == 3650 * 86400
    with pytest.raises(ValueError, match="at most 3650d"):
        duration("3651d")


@pytest.mark.parametrize(
    ("written", "number_of_bytes"),
    [
        ("32MB", 32 * 1024 * 1024),
        ("32MiB", 32 * 1024 * 1024),
        ("64KiB", 65536),
        ("64KB", 65536),
        ("1.5GB", 3 * 512 * 1024 * 1024),
        ("2TB", 2 * 1024**4),
        ("512B", 512),
        ("1024", 1024),
        (1024, 1024),
        ("0", 0),
        (0, 0),
    ],
)
def test_a_size_is_read_as_bytes(written, number_of_bytes):
    assert size(written) == number_of_bytes


@pytest.mark.parametrize(
    "written",
    [
        *("", "MB", "32 MB", "32mb", "32M", "-1MB", "1.3B", "0.3KB", "1e3", "٣", "²", "x"),
        *(-1, 1.5, 1024.0, True, None, [], {}),
    ],
)
def test_what_is_no_size_is_refused_with_an_example(written):
    with pytest.raises(ValueError, match=r"must be a size such as 32MB"):
        size(written)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (0.5, "500ms"), (2, "2s"), (90, "90s"), (120, "2m"), (5400, "90m"), (86400, "1d")],
)
def test_a_duration_is_spelt_with_its_largest_whole_unit(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("number_of_bytes", "text"),
    [(0, "0"), (1, "1B"), (1024, "1KB"), (1536, "1536B"), (32 * 1024**2, "32MB"), (1024**3, "1GB")],
)
def test_a_size_is_spelt_with_its_largest_whole_unit(number_of_bytes, text):
    assert size_text(number_of_bytes) == text


@given(st.integers(0, 3650 * 86_400_000_000))
def test_every_duration_is_read_back_as_itself(microseconds):
    seconds = microseconds / 1_000_000
    assert duration(duration_text(seconds)) == seconds


@given(st.integers(0, 2**60))
def test_every_size_is_read_back_as_itself(number_of_bytes):
    assert size(size_text(number_of_bytes)) == number_of_bytes


@given(st.text(), st.sampled_from([duration, size]))
def test_any_text_is_read_or_refused(text, read):
    try:
        amount = read(text)
    except ValueError:
        return
    assert amount >= 0
