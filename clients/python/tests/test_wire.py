"""What goes over the wire, without a server."""

import math

import pytest

from redis_seat import Denial, Grant, OwnerLimited, Queued, wire

FULL = {"lease": 1.5, "owner": "ann", "max_per_owner": 2, "takeover": True, "with_token": True}


def test_options_stand_in_the_order_of_the_documentation() -> None:
    call = wire.acquire("k", "s", 5, {"a": 1}, weight=3, queue=2, block=0.25, **FULL)
    assert call.args == (
        *("SEAT.ACQUIRE", "k", b"s", 5, '{"a":1}', "PX", 1500, "WEIGHT", 3),
        *("OWNER", b"ann", "MAX", 2, "TAKEOVER", "WITHTOKEN", "QUEUE", 2000, "BLOCK", 250),
    )


def test_what_is_not_asked_for_is_not_sent() -> None:
    assert wire.acquire("k", "s", 5).args == ("SEAT.ACQUIRE", "k", b"s", 5)
    assert wire.heartbeat("k", "s").args == ("SEAT.HEARTBEAT", "k", b"s")
    assert wire.release("k", "s").args == ("SEAT.RELEASE", "k", b"s")
    assert wire.acquire("k", "s", 5, block=0).args[-2:] == ("BLOCK", 0)


@pytest.mark.parametrize("text", [str, str.encode], ids=["str", "bytes"])
def test_each_answer_to_acquire_has_its_class(text: object) -> None:
    def reply(status: str, *rest: object) -> list[object]:
        return [int(status[0] == "A"), text(status), *rest]  # type: ignore[operator]

    plain, full = wire.acquire("k", "s", 5).decode, wire.acquire("k", "s", 5, **FULL).decode
    assert plain(reply("ACQUIRED", 1, 5)) == Grant(1, 5)
    assert plain(reply("ALREADY_ACTIVE", 1)) == Grant(1, None, already_active=True)
    ended = text("old")  # type: ignore[operator]
    assert full(reply("ACQUIRED", 1, 5, 1500, 7, ended)) == Grant(1, 5, False, 1.5, 7, "old")
    assert full(reply("ALREADY_ACTIVE", 1, None, None, None)) == Grant(1, None, True)
    assert plain(reply("NO_SEATS_AVAILABLE", 5, 5)) == Denial(5, 5)
    assert plain(reply("QUEUED", 5, 5, 2)) == Queued(5, 5, 2)
    assert full(reply("OWNER_LIMIT", 2, 2)) == OwnerLimited(2, 2)


def test_an_answer_is_true_only_if_the_session_has_a_seat() -> None:
    assert Grant(1)
    for denied in (Denial(1, 1), Queued(1, 1, 1), OwnerLimited(1, 1)):
        assert not denied


def test_results_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Grant(1).used = 2  # type: ignore[misc]


@pytest.mark.parametrize("lease", [0, -1, 0.0001, math.inf, math.nan])
def test_a_duration_that_is_none_is_refused(lease: float) -> None:
    with pytest.raises(ValueError, match="lease"):
        wire.acquire("k", "s", 1, lease=lease)


def test_metadata_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        wire.acquire("k", "s", 1, {"a": math.nan})


def test_ids_that_are_not_utf_8_come_back_as_they_were() -> None:
    [session] = wire.sessions("k").decode([b"\xff\x00"])
    assert wire.release("k", session).args[-1] == b"\xff\x00"


def test_an_answer_that_no_server_gives_is_an_error() -> None:
    with pytest.raises(ValueError, match="ACQUIRE"):
        wire.acquire("k", "s", 1).decode([1, b"WHAT", 1])


def test_time_left_tells_no_lease_from_no_session() -> None:
    decode = wire.pttl("k", "s").decode
    assert (decode(1500), decode(-1), decode(-2)) == (1.5, math.inf, None)
