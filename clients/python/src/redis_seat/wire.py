"""The commands as they go over the wire, and what their replies mean. Nothing here does I/O.

Each function makes the :class:`Call` of one command. ``SeatCommands`` and ``AsyncSeatCommands`` run
them; in a pipeline or a transaction they can be run by hand::

    call = wire.acquire("license:acme", "alice", 5, lease=360)
    pipeline.execute_command(*call.args)
    [reply] = pipeline.execute()
    grant = call.decode(reply)

Replies are understood whether the client decodes them or not, in RESP2 and in RESP3. Ids that are
not UTF-8 come as strings with surrogate escapes, and are sent back as the bytes that they were.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from redis_seat.results import (
    Acquired,
    Cleanup,
    Denial,
    Grant,
    Heartbeat,
    Holder,
    OwnerLimited,
    OwnerUse,
    PoolInfo,
    Queued,
    Release,
    ScanPage,
    Waiter,
)

T = TypeVar("T")

#: A key, a session or an owner.
Name = str | bytes
Argument = str | bytes | int
#: A JSON object, as Python has it.
Metadata = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One command: its words, and how to read the reply."""

    args: tuple[Argument, ...]
    decode: Callable[[Any], T]


# The commands.


def acquire(
    key: Name,
    session: Name,
    seats: int,
    metadata: Metadata | None = None,
    *,
    lease: float | None = None,
    weight: int = 1,
    owner: Name | None = None,
    max_per_owner: int | None = None,
    takeover: bool = False,
    queue: float | None = None,
    block: float | None = None,
    with_token: bool = False,
) -> Call[Acquired]:
    """``SEAT.ACQUIRE``: take a seat of the pool at ``key``, which has ``seats``.

    The result is true only if the session holds a seat. Asking again is safe: it takes no second
    one and renews the lease.

    :param session: an id of one process, such as a UUID.
    :param metadata: a JSON object, at most 16 KiB of text.
    :param lease: seconds for which the session may stay silent. Without one it holds its seat until
        it is released.
    :param weight: how many seats it takes.
    :param owner: whose session it is.
    :param max_per_owner: at most so many live sessions of this owner in the pool.
    :param takeover: end the owner's session that was silent for longest rather than be refused.
    :param queue: keep a position in the queue for so many seconds after this call.
    :param block: wait on this connection for so many seconds; 0 is for ever. The client's
        ``socket_timeout`` must be longer.
    :param with_token: make a new token, without which nobody can renew or release the seat.
    :raises ValueError: the metadata are no JSON, or a duration is too short or no number.
    """
    words: list[Argument] = ["SEAT.ACQUIRE", key, _bytes(session), seats]
    if metadata is not None:
        words.append(_json(metadata))
    if lease is not None:
        words += ("PX", _milliseconds("lease", lease))
    if weight != 1:
        words += ("WEIGHT", weight)
    if owner is not None:
        words += ("OWNER", _bytes(owner))
    if max_per_owner is not None:
        words += ("MAX", max_per_owner)
    if takeover:
        words.append("TAKEOVER")
    if with_token:
        words.append("WITHTOKEN")
    if queue is not None:
        words += ("QUEUE", _milliseconds("queue", queue))
    if block is not None:
        words += ("BLOCK", _milliseconds("block", block) if block else 0)

    def decode(reply: Any) -> Acquired:
        return _acquired(reply, has_lease=lease is not None, token=with_token, takeover=takeover)

    return Call(tuple(words), decode)


def heartbeat(
    key: Name, session: Name, *, lease: float | None = None, token: int | None = None
) -> Call[Heartbeat]:
    """``SEAT.HEARTBEAT``: a sign of life, which renews the session's lease by its own length.

    :param lease: seconds, another length from now on.
    :param token: only if it is the session's present one.
    """
    words: list[Argument] = ["SEAT.HEARTBEAT", key, _bytes(session)]
    if lease is not None:
        words += ("PX", _milliseconds("lease", lease))
    if token is not None:
        words += ("TOKEN", token)
    return Call(tuple(words), _heartbeat)


def release(key: Name, session: Name, *, token: int | None = None) -> Call[Release]:
    """``SEAT.RELEASE``: give the session's seat back, or its position in the queue.

    :param token: only if it is the session's present one.
    """
    words: tuple[Argument, ...] = ("SEAT.RELEASE", key, _bytes(session))
    return Call(words if token is None else (*words, "TOKEN", token), _release)


def count(key: Name) -> Call[int]:
    """``SEAT.COUNT``: how many sessions hold a seat."""
    return Call(("SEAT.COUNT", key), int)


def sessions(key: Name, *, owner: Name | None = None) -> Call[list[str]]:
    """``SEAT.SESSIONS``: the sessions that hold a seat, or those of one owner, in no order."""
    return Call(_sessions(key, owner), _texts)


def sessions_metadata(
    key: Name, *, owner: Name | None = None
) -> Call[dict[str, dict[str, Any] | None]]:
    """``SEAT.SESSIONS WITHMETADATA``: what :func:`get` answers for each session."""
    return Call((*_sessions(key, owner), "WITHMETADATA"), _metadata_by_session)


def holders(key: Name, *, owner: Name | None = None) -> Call[list[Holder]]:
    """``SEAT.SESSIONS WITHDETAILS``: the sessions, and all that the pool knows of them."""
    return Call((*_sessions(key, owner), "WITHDETAILS"), _holders)


def scan(key: Name, cursor: int = 0, *, count: int | None = None) -> Call[ScanPage[list[str]]]:
    """``SEAT.SCAN``: sessions that hold a seat, about ``count`` at a time.

    Begin with the cursor 0 and go on with the one that came back, until it is 0.
    """
    return Call(_scan(key, cursor, count), _page(_texts))


def scan_metadata(
    key: Name, cursor: int = 0, *, count: int | None = None
) -> Call[ScanPage[dict[str, dict[str, Any] | None]]]:
    """``SEAT.SCAN WITHMETADATA``: likewise, with what :func:`get` answers for each session."""
    return Call((*_scan(key, cursor, count), "WITHMETADATA"), _page(_metadata_by_session))


def scan_holders(
    key: Name, cursor: int = 0, *, count: int | None = None
) -> Call[ScanPage[list[Holder]]]:
    """``SEAT.SCAN WITHDETAILS``: likewise, with all that the pool knows of the sessions."""
    return Call((*_scan(key, cursor, count), "WITHDETAILS"), _page(_holders))


def get(key: Name, session: Name) -> Call[dict[str, Any] | None]:
    """``SEAT.GET``: the session's metadata with ``acquired_at``, ``last_heartbeat`` and, after the
    first heartbeat, ``heartbeat_count``. ``None`` if it holds no seat."""
    return Call(("SEAT.GET", key, _bytes(session)), _object)


def holder(key: Name, session: Name) -> Call[Holder | None]:
    """``SEAT.GET DETAILS``: all that the pool knows of the session; ``None`` is no seat."""

    def decode(reply: Any) -> Holder | None:
        return None if reply is None else _holder(_text(session), reply)

    return Call(("SEAT.GET", key, _bytes(session), "DETAILS"), decode)


def owners(key: Name) -> Call[dict[str, OwnerUse]]:
    """``SEAT.OWNERS``: the owners of live sessions."""
    return Call(("SEAT.OWNERS", key), _owners)


def info(key: Name) -> Call[PoolInfo | None]:
    """``SEAT.INFO``: the pool's figures, ``None`` if there is no pool at ``key``."""
    return Call(("SEAT.INFO", key), _info)


def pttl(key: Name, session: Name) -> Call[float | None]:
    """``SEAT.PTTL``: seconds until the session's lease expires; ``math.inf`` for a session without
    a lease, ``None`` for one that holds no seat."""
    return Call(("SEAT.PTTL", key, _bytes(session)), _time_left)


def cleanup(key: Name, *, idle: int | None = None) -> Call[Cleanup]:
    """``SEAT.CLEANUP``: remove expired sessions now rather than soon.

    :param idle: also those that were silent for more than so many whole seconds, leased or not.
    """
    words: tuple[Argument, ...] = ("SEAT.CLEANUP", key)
    return Call(words if idle is None else (*words, "IDLE", idle), _cleanup)


def revoke(key: Name, *sessions: Name) -> Call[int]:
    """``SEAT.REVOKE``: take the seats of these sessions away; how many held one."""
    return Call(("SEAT.REVOKE", key, *map(_bytes, sessions)), int)


def revoke_owner(key: Name, owner: Name) -> Call[int]:
    """``SEAT.REVOKEOWNER``: take the seats of an owner's sessions away; how many held one."""
    return Call(("SEAT.REVOKEOWNER", key, _bytes(owner)), int)


def resize(key: Name, seats: int) -> Call[int]:
    """``SEAT.RESIZE``: change the limit for the pool and for all who wait; how many blocked clients
    were granted a seat by it. Nobody is evicted."""
    return Call(("SEAT.RESIZE", key, seats), int)


def queue(key: Name) -> Call[list[Waiter]]:
    """``SEAT.QUEUE``: who waits for a seat, in order."""
    return Call(("SEAT.QUEUE", key), _waiters)


def position(key: Name, session: Name) -> Call[int | None]:
    """``SEAT.POSITION``: the session's position in the queue; 1 is the first, ``None`` is none."""
    return Call(("SEAT.POSITION", key, _bytes(session)), _optional_int)


def import_sessions(key: Name, sessions_key: Name, metadata_key: Name) -> Call[int]:
    """``SEAT.IMPORT``: adopt the sessions of the scripts' SET and HASH; how many there were."""
    return Call(("SEAT.IMPORT", key, sessions_key, metadata_key), int)


def export_sessions(key: Name, sessions_key: Name, metadata_key: Name) -> Call[int]:
    """``SEAT.EXPORT``: give the sessions back to such keys, and remove the pool; how many."""
    return Call(("SEAT.EXPORT", key, sessions_key, metadata_key), int)


# Arguments.


def _bytes(name: Name) -> bytes:
    return name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")


def _json(metadata: Metadata) -> str:
    return json.dumps(metadata, allow_nan=False, separators=(",", ":"))


def _milliseconds(name: str, seconds: float) -> int:
    if not (math.isfinite(seconds) and seconds >= 0.001):
        raise ValueError(f"{name} must be at least a thousandth of a second, not {seconds!r}")
    return round(seconds * 1000)


def _sessions(key: Name, owner: Name | None) -> tuple[Argument, ...]:
    words: tuple[Argument, ...] = ("SEAT.SESSIONS", key)
    return words if owner is None else (*words, "OWNER", _bytes(owner))


def _scan(key: Name, cursor: int, count: int | None) -> tuple[Argument, ...]:
    words: tuple[Argument, ...] = ("SEAT.SCAN", key, cursor)
    return words if count is None else (*words, "COUNT", count)


# Replies.


def _text(reply: Any) -> str:
    return reply.decode("utf-8", "surrogateescape") if isinstance(reply, bytes) else str(reply)


def _texts(reply: Iterable[Any]) -> list[str]:
    return [_text(item) for item in reply]


def _pairs(reply: Any) -> Iterator[tuple[str, Any]]:
    """A map: RESP3 has them, RESP2 and servers before 7.0 list names and values in turn."""
    if isinstance(reply, Mapping):
        items = iter(reply.items())
    else:
        flat = iter(reply)
        items = zip(flat, flat, strict=True)
    return ((_text(name), value) for name, value in items)


def _optional_int(reply: Any) -> int | None:
    return None if reply is None else int(reply)


def _optional_text(reply: Any) -> str | None:
    return None if reply is None else _text(reply)


def _seconds(milliseconds: Any) -> float | None:
    return None if milliseconds is None else int(milliseconds) / 1000


def _object(reply: Any) -> dict[str, Any] | None:
    if reply is None:
        return None
    metadata: dict[str, Any] = json.loads(_text(reply))
    return metadata


def _acquired(reply: Any, *, has_lease: bool, token: bool, takeover: bool) -> Acquired:
    status = _text(reply[1])
    if status == "NO_SEATS_AVAILABLE":
        return Denial(int(reply[2]), int(reply[3]))
    if status == "QUEUED":
        return Queued(int(reply[2]), int(reply[3]), int(reply[4]))
    if status == "OWNER_LIMIT":
        return OwnerLimited(int(reply[2]), int(reply[3]))
    if status not in ("ACQUIRED", "ALREADY_ACTIVE"):
        raise ValueError(f"SEAT.ACQUIRE was answered {reply!r}")
    already_active = status == "ALREADY_ACTIVE"
    # What options ask for stands at the end, in this order.
    asked = iter(reply[3:] if already_active else reply[4:])
    return Grant(
        used=int(reply[2]),
        seats=None if already_active else int(reply[3]),
        already_active=already_active,
        lease=_seconds(next(asked)) if has_lease else None,
        token=_optional_int(next(asked)) if token else None,
        ended=_optional_text(next(asked)) if takeover else None,
    )


def _heartbeat(reply: Any) -> Heartbeat:
    if int(reply[0]) == 0:
        return Heartbeat(active=_text(reply[1]) != "SESSION_NOT_ACTIVE")
    lease = _seconds(reply[3]) if len(reply) > 3 else None
    return Heartbeat(active=True, count=int(reply[2]), lease=lease)


def _release(reply: Any) -> Release:
    return Release(int(reply[2]) if int(reply[0]) else None)


def _metadata_by_session(reply: Any) -> dict[str, dict[str, Any] | None]:
    return {session: _object(metadata) for session, metadata in _pairs(reply)}


def _holder(session: str, reply: Any) -> Holder:
    details = dict(_pairs(reply))
    return Holder(
        session=session,
        owner=_optional_text(details["owner"]),
        weight=int(details["weight"]),
        acquired_at=_optional_int(details["acquired_at"]),
        last_heartbeat=_optional_int(details["last_heartbeat"]),
        heartbeats=int(details["heartbeats"]),
        lease=_seconds(details["lease_ms"]),
        expires_in=_seconds(details["expires_in_ms"]),
        token=_optional_int(details["token"]),
        metadata=_object(details["metadata"]),
    )


def _holders(reply: Any) -> list[Holder]:
    return [_holder(session, details) for session, details in _pairs(reply)]


def _page(items: Callable[[Any], T]) -> Callable[[Any], ScanPage[T]]:
    return lambda reply: ScanPage(int(reply[0]), items(reply[1]))


def _owners(reply: Any) -> dict[str, OwnerUse]:
    return {owner: OwnerUse(int(use[0]), int(use[1])) for owner, use in _pairs(reply)}


def _info(reply: Any) -> PoolInfo | None:
    if reply is None:
        return None
    figures = {name: int(value) for name, value in _pairs(reply)}
    next_deadline_ms = figures["next_deadline_ms"]
    return PoolInfo(
        seats=figures["seats"],
        used=figures["used"],
        available=figures["available"],
        kept=figures["kept"],
        waiting=figures["waiting"],
        leased=figures["leased"],
        next_deadline=None if next_deadline_ms < 0 else next_deadline_ms / 1000,
        memory_bytes=figures["memory_bytes"],
        sessions=figures["sessions"],
        owners=figures["owners"],
        denied=figures["denied"],
        peak_used=figures["peak_used"],
    )


def _time_left(reply: Any) -> float | None:
    milliseconds = int(reply)
    if milliseconds == -2:
        return None
    return math.inf if milliseconds == -1 else milliseconds / 1000


def _cleanup(reply: Any) -> Cleanup:
    return Cleanup(int(reply[0]), int(reply[1]))


def _waiters(reply: Any) -> list[Waiter]:
    return [Waiter(_text(session), int(waited_ms) / 1000) for session, waited_ms in reply]
