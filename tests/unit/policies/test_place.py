"""Which worker a request goes to."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from policies.place import least_running


@dataclass(eq=False)
class Row:
    running: int = 0
    ejected_until: float = 0.0


NOW = 100.0
ROWS = st.lists(
    st.builds(
        Row,
        running=st.integers(0, 5),
        ejected_until=st.sampled_from((0.0, NOW - 1, NOW, NOW + 1, NOW + 2)),
    ),
    min_size=1,
    max_size=12,
)


@given(ROWS, st.integers(0, 1000), st.data())
def test_the_least_loaded_of_the_healthy(rows, turn, data):
    tried = data.draw(st.sampled_from((None, *rows)))
    chosen = least_running(rows, NOW, tried, turn)
    others = [row for row in rows if row is not tried]
    healthy = [row for row in others if row.ejected_until <= NOW]
    if healthy:
        assert chosen in healthy
        assert chosen.running == min(row.running for row in healthy)
    elif others:
        assert chosen in others
        assert chosen.ejected_until == min(row.ejected_until for row in others)
    else:
        assert chosen is None


@given(ROWS, st.integers(0, 1000))
def test_ties_go_round(rows, turn):
    healthy = [row for row in rows if row.ejected_until <= NOW]
    least = [r for r in healthy if r.running == min(x.running for x in healthy)]
    n = len(rows)
    chosen = {id(least_running(rows, NOW, None, turn + i)) for i in range(n)}
    if least:
        assert chosen == {id(row) for row in least}


@given(st.integers(1, 8), st.integers(0, 200))
def test_counts_raised_as_they_are_chosen_spread_a_burst_evenly(workers, requests):
    rows = [Row() for _ in range(workers)]
    for turn in range(requests):
        row = least_running(rows, NOW, None, turn)
        assert row is not None
        row.running += 1
    counts = Counter(row.running for row in rows)
    assert max(counts) - min(counts) <= 1
