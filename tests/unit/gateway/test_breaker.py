"""When a worker is left out, and when it comes back."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.workers.breaker import (
    FAILURES,
    FIRST_EJECTION_S,
    LONGEST_EJECTION_S,
    WITHIN_S,
    Breaker,
)


def ejected(breaker: Breaker, now: float) -> bool:
    return now < breaker.ejected_until


def failing(now: float, times: int = FAILURES) -> Breaker:
    breaker = Breaker()
    for _ in range(times):
        breaker.failed(now)
    return breaker


def test_one_failed_connect_is_enough_and_only_for_a_moment():
    breaker = Breaker()
    breaker.unreachable(10.0)
    assert ejected(breaker, 10.0)
    assert ejected(breaker, 10.0 + FIRST_EJECTION_S - 0.01)
    assert not ejected(breaker, 10.0 + FIRST_EJECTION_S)


def test_the_moments_grow_up_to_a_limit():
    breaker, now, lengths = Breaker(), 10.0, []
    for _ in range(9):
        breaker.unreachable(now)
        lengths.append(breaker.ejected_until - now)
        now = breaker.ejected_until
    assert lengths == [1, 2, 4, 8, 16, 30, 30, 30, 30]
    breaker.succeeded()
    breaker.unreachable(now)
    assert breaker.ejected_until - now == FIRST_EJECTION_S


def test_an_outage_seen_by_many_requests_at_once_is_one():
    breaker = Breaker()
    for i in range(100):
        breaker.unreachable(10.0 + i / 1000)
    assert breaker.ejected_until == 10.0 + FIRST_EJECTION_S


def test_other_failures_count_when_five_come_within_ten_seconds():
    assert not ejected(failing(10.0, FAILURES - 1), 10.0)
    assert ejected(failing(10.0), 10.0)


def test_five_spread_over_longer_do_not():
    breaker = Breaker()
    for i in range(50):
        breaker.failed(i * (WITHIN_S / (FAILURES - 1) + 0.01))
        assert breaker.ejected_until == 0.0


def test_one_that_fails_on_its_return_goes_at_once():
    breaker = failing(10.0)
    breaker.failed(12.0)
    assert breaker.ejected_until == 12.0 + 2 * FIRST_EJECTION_S


def test_a_success_ends_it():
    breaker = failing(10.0)
    breaker.succeeded()
    assert not ejected(breaker, 10.0)
    assert breaker.well(10.0)
    breaker.failed(10.1)
    assert not ejected(breaker, 10.1)


def test_a_probe_brings_back_what_was_silent():
    breaker = Breaker()
    breaker.unreachable(10.0)
    breaker.probe_answered()
    assert not ejected(breaker, 10.0)
    assert breaker.well(10.0)


def test_a_probe_brings_back_what_failed_probes():
    breaker = Breaker()
    for i in range(FAILURES):
        breaker.probe_failed(10.0 + i)
    assert ejected(breaker, 14.0)
    breaker.probe_answered()
    assert not ejected(breaker, 14.0)


def test_a_probe_says_nothing_for_one_that_fails_its_requests():
    breaker = failing(10.0)
    breaker.probe_answered()
    assert ejected(breaker, 10.0)
    assert not breaker.well(10.0)
    assert breaker.well(10.0 + FIRST_EJECTION_S)  # its time is over: requests decide


def test_one_that_is_silent_is_not_well_when_its_time_is_over():
    breaker = Breaker()
    breaker.unreachable(10.0)
    assert not ejected(breaker, 100.0)
    assert not breaker.well(100.0)


EVENTS = ("unreachable", "failed", "succeeded", "probe_failed", "probe_answered")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0, 20))))
def test_whatever_happens(events):
    breaker, now = Breaker(), 1.0
    failures: list[float] = []
    for event, passes in events:
        now += passes
        before = breaker.ejected_until
        if event in ("succeeded", "probe_answered"):
            getattr(breaker, event)()
        else:
            getattr(breaker, event)(now)
        # never longer than the longest, never moved while it lasts
        assert breaker.ejected_until <= now + LONGEST_EJECTION_S
        if before > now:
            assert breaker.ejected_until in (before, 0.0)
        if event == "unreachable":
            assert ejected(breaker, now)
            assert not breaker.well(now)
        elif event == "succeeded":
            assert breaker.well(now)
        elif event in ("failed", "probe_failed"):
            failures.append(now)
        # an ejection has its reason
        if breaker.ejected_until != before and event == "failed":
            recent = [t for t in failures if now - t <= WITHIN_S]
            assert len(recent) >= FAILURES or before


def test_one_that_hangs_is_left_out_until_a_probe_is_answered():
    breaker = Breaker()
    for i in range(20):  # asked again and again, before its time is over
        breaker.hangs(10.0 + i)
        assert ejected(breaker, 10.0 + i + 10)
    assert not breaker.well(100.0)
    breaker.probe_answered()
    assert not ejected(breaker, 30.0)
    assert breaker.well(30.0)


def test_hanging_doesnt_shorten_an_ejection():
    breaker, now = Breaker(), 10.0
    for _ in range(8):
        breaker.unreachable(now)
        until = breaker.ejected_until
        breaker.hangs(now)
        assert breaker.ejected_until >= until
        now = breaker.ejected_until
