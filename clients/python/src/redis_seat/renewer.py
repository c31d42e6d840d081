"""The threads of a pool: one sends heartbeats, one looks for losses while that one waits."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redis_seat.line import Line
from redis_seat.renewal import Renewal
from redis_seat.results import Release
from redis_seat.seat import log
from redis_seat.steps import drive
from redis_seat.terms import Terms
from redis_seat.wire import Call

if TYPE_CHECKING:
    from redis_seat.pool import Seat

# What a thread does at each turn; how many seconds until the next one.
Turn = Callable[["Renewer"], float]


class _Worker:
    """A thread that runs while its renewer has seats. It holds the renewer only while it works."""

    def __init__(self, name: str, make_turn: Callable[[], tuple[Turn, Callable[[], None]]]) -> None:
        self._name = name
        self._make_turn = make_turn
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def ensure(self, renewer: Renewer) -> None:
        """Have it running, and look at once."""
        with self._lock:
            is_running = self._thread is not None and self._thread.is_alive()
            if not (is_running or self._closed):
                self._thread = threading.Thread(
                    target=self._run, args=(weakref.ref(renewer),), name=self._name, daemon=True
                )
                self._thread.start()
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        """End it, and wait until it has ended."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self, reference: weakref.ref[Renewer]) -> None:
        turn, cleanup = self._make_turn()
        try:
            while (pause := self._turn(turn, reference)) is not None:
                self._wake.wait(pause)
                self._wake.clear()
        finally:
            cleanup()

    def _turn(self, turn: Turn, reference: weakref.ref[Renewer]) -> float | None:
        renewer = reference()
        with self._lock:
            if renewer is None or self._closed or renewer.renewal.is_idle():
                self._thread = None
                return None
        return max(turn(renewer), 0.0)


class Renewer:
    """Keeps the seats of one pool in one process."""

    def __init__(self, client: Any, terms: Terms) -> None:
        self.renewal: Renewal[Seat] = Renewal(terms)
        self._sender = _Worker("redis_seat heartbeats", lambda: _sending(client, terms))
        self._watcher = _Worker("redis_seat losses", lambda: (_watch, lambda: None))
        for worker in (self._sender, self._watcher):
            # Not at exit: in a child of fork a lock of the parent's may be held for ever.
            weakref.finalize(self, worker.wake).atexit = False

    def add(self, seat: Seat) -> None:
        self.renewal.add(seat)
        self._sender.ensure(self)
        self._watcher.ensure(self)

    def remove(self, seat: Seat) -> None:
        self.renewal.remove(seat)

    def give_back(self, call: Call[Release]) -> None:
        self.renewal.give_back(call)
        self._sender.ensure(self)

    def look(self) -> None:
        """Have the watcher look for losses now."""
        self._watcher.wake()

    def close(self) -> None:
        self._sender.close()
        self._watcher.close()


def _sending(client: Any, terms: Terms) -> tuple[Turn, Callable[[], None]]:
    line = Line(client, terms.key)

    def turn(renewer: Renewer) -> float:
        pause = drive(renewer.renewal.turn(), line)
        renewer.look()
        return pause

    return turn, line.close


def _watch(renewer: Renewer) -> float:
    for seat in renewer.renewal.take_lost():
        log.warning("the seat of %s is lost", seat.session)
        seat.announce()
        if seat.on_lost is not None:
            try:
                seat.on_lost(seat)
            except (Exception, SystemExit):
                # In a thread sys.exit() ends that alone, and it would be this one.
                log.exception("on_lost of %s failed", seat.session)
    return renewer.renewal.until_loss()
