"""When a seat is lost and when it wants a heartbeat, by a clock that the test sets."""

from __future__ import annotations

import math

import pytest

from redis_seat import Grant, SeatLost, clock
from redis_seat.renewal import Renewal
from redis_seat.results import Heartbeat
from redis_seat.seat import BaseSeat
from redis_seat.steps import drive
from redis_seat.terms import Terms
from redis_seat.wire import Call

TERMS = Terms("k", lease=9.0, heartbeat_interval=3.0, slice=1.0, ticket=3.0)
GOOD = Heartbeat(active=True, count=1)


class Clock:
    def __init__(self) -> None:
        self.time = 100.0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Clock:
    now = Clock()
    monkeypatch.setattr(clock, "now", lambda: now.time)
    return now


def seat(now: Clock, **options: float) -> BaseSeat:
    options = {"max_hold": math.inf, **options}
    return BaseSeat(TERMS, "s", Grant(1), now.time, on_lost=None, max_hold=options["max_hold"])


def test_the_lease_counts_from_when_the_heartbeat_was_sent(now: Clock) -> None:
    held = seat(now)
    assert held.next_heartbeat == 103
    now.time = 105
    # Sent at 103, answered at 105.
    held.heard(GOOD, 103)
    assert held.next_heartbeat == 106
    assert held.deadline == 112
    now.time = 111.9
    assert not held.lost
    now.time = 112
    assert held.lost
    with pytest.raises(SeatLost, match="s has lost"):
        held.raise_if_lost()


def test_an_answer_after_the_deadline_brings_nothing_back(now: Clock) -> None:
    held = seat(now)
    now.time = 110
    held.heard(GOOD, 108.9)
    assert held.lost
    assert held.next_heartbeat == math.inf


def test_what_was_lost_stays_lost_if_the_clock_goes_back(now: Clock) -> None:
    held = seat(now)
    now.time = 110
    assert held.lost
    now.time = 101
    assert held.lost


def test_the_servers_word_is_a_loss_at_once(now: Clock) -> None:
    held = seat(now)
    held.heard(Heartbeat(active=False), 100)
    assert held.lost
    assert held.end() is None


def test_a_heartbeat_that_a_release_has_overtaken_is_no_loss(now: Clock) -> None:
    held = seat(now)
    assert held.end() is not None
    held.heard(Heartbeat(active=False), 100)
    assert not held.lost
    assert held.end() is None
    assert held.next_heartbeat == math.inf


def test_a_heartbeat_that_was_not_counted_renews_nothing(now: Clock) -> None:
    held = seat(now)
    now.time = 103
    held.heard(Heartbeat(active=True), 103)
    assert held.deadline == 109
    assert held.next_heartbeat == 106


def test_after_max_hold_no_heartbeat_is_due(now: Clock) -> None:
    held = seat(now, max_hold=5)
    held.heard(GOOD, 101)
    assert held.next_heartbeat == 104
    # One that is late is late.
    now.time = 105
    assert held.next_heartbeat == math.inf
    now.time = 104
    held.heard(GOOD, 103)
    assert held.next_heartbeat == math.inf
    assert not held.lost


class Line:
    """Answers well, and takes its time to connect."""

    def __init__(self, now: Clock, connects_for: float = 0) -> None:
        self.now, self.connects_for = now, connects_for
        self.batches: list[int] = []

    def connect(self) -> None:
        self.now.time += self.connects_for

    def ask(self, calls: list[Call[Heartbeat]]) -> list[Heartbeat]:
        self.batches.append(len(calls))
        return [GOOD] * len(calls)


def test_heartbeats_that_are_due_go_together(now: Clock) -> None:
    renewal: Renewal[BaseSeat] = Renewal(TERMS)
    seats = [seat(now) for _ in range(1200)]
    for held in seats:
        renewal.add(held)
    line = Line(now)
    assert 0 < drive(renewal.turn(), line) <= 3
    assert line.batches == []
    now.time = 103
    drive(renewal.turn(), line)
    assert line.batches == [500, 500, 200]
    assert {held.next_heartbeat for held in seats} == {106}


def test_what_was_lost_while_it_connected_is_not_sent(now: Clock) -> None:
    renewal: Renewal[BaseSeat] = Renewal(TERMS)
    held = seat(now)
    renewal.add(held)
    now.time = 108
    line = Line(now, connects_for=2)
    drive(renewal.turn(), line)
    assert sum(line.batches) == 0
    assert renewal.take_lost() == [held]
    assert renewal.take_lost() == []
