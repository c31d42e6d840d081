"""Copies the feed of redis-seat into a database; docs/feed.md says what that is good for.

    python feed_to_database.py redis://127.0.0.1:6379 seat:feed seats.sqlite3
    python feed_to_database.py redis://127.0.0.1:6379 seat:feed postgresql://me@host/seats

It needs redis-py, and psycopg for PostgreSQL. It may be killed at any moment and started again:
each batch of entries is one transaction, and how far it has come is a row of the same one.
"""

import argparse
import sqlite3
import time
from typing import Any, NamedTuple

import redis

# The fields that are kept, with their types. Two of the names are words of SQL.
FIELDS = {
    "event": "TEXT", "pool": "TEXT", "session": "TEXT", "used": "BIGINT", "seats": "BIGINT",
    "owner": "TEXT", "weight": "BIGINT", "metadata": "TEXT", "held_s": "BIGINT",
    "heartbeats": "BIGINT", "waited_ms": "BIGINT", "lease_ms": "BIGINT", "deadline_ms": "BIGINT",
    "replaced_by": "TEXT", "from": "TEXT", "user": "TEXT",
}  # fmt: skip
COLUMNS = [{"from": "from_pool", "user": "user_name"}.get(field, field) for field in FIELDS]

TABLES = [
    "CREATE TABLE IF NOT EXISTS seat_entries (node TEXT, ms BIGINT, seq BIGINT, "
    + ", ".join(f"{column} {kind}" for column, kind in zip(COLUMNS, FIELDS.values()))
    + ", PRIMARY KEY (ms, seq, node))",
    "CREATE TABLE IF NOT EXISTS seat_holds (pool TEXT NOT NULL, session TEXT NOT NULL, "
    "owner TEXT, weight BIGINT NOT NULL, from_ms BIGINT NOT NULL, until_ms BIGINT)",
    "CREATE INDEX IF NOT EXISTS seat_holds_by_session ON seat_holds (pool, session, until_ms)",
    "CREATE TABLE IF NOT EXISTS seat_gaps (stream TEXT, after_ms BIGINT, found_ms BIGINT)",
    "CREATE TABLE IF NOT EXISTS seat_position (stream TEXT PRIMARY KEY, "
    "ms BIGINT NOT NULL, seq BIGINT NOT NULL, node TEXT NOT NULL, settled BIGINT NOT NULL)",
]

# Seconds after which what the server's own commands did to a pool has its entry.
SOON = 0.1


class Position(NamedTuple):
    """The entry that was read last, and whether the holds were compared with the pools since."""

    ms: int = 0
    seq: int = 0
    node: str = ""
    settled: int = 0


class Entry(NamedTuple):
    ms: int
    seq: int
    fields: dict[str, str]

    @property
    def node(self) -> str:
        return self.fields["node"]


def text(value: bytes) -> str:
    """Names are bytes; those that are no text are kept readable."""
    return value.decode(errors="backslashreplace").replace("\0", "\\x00")


class Worker:
    def __init__(self, server: Any, stream: str, database: Any, mark: str, batch: int) -> None:
        """`server` is a client of redis-py that does not decode replies, and `database` a
        connection of DB-API whose statements take parameters as `mark`.
        """
        self.server, self.stream, self.batch = server, stream, batch
        self.database, self.mark = database, mark
        for table in TABLES:
            self.run(table)
        first = "INSERT INTO seat_position VALUES (?, 0, 0, '', 0) ON CONFLICT DO NOTHING"
        self.run(first, stream)
        self.database.commit()

    def run(self, statement: str, *values: object) -> Any:
        cursor = self.database.cursor()
        cursor.execute(statement.replace("?", self.mark), values)
        return cursor

    def step(self) -> bool:
        """Copies the next batch. Returns whether there may be more."""
        columns = ", ".join(Position._fields)
        rows = self.run(f"SELECT {columns} FROM seat_position WHERE stream = ?", self.stream)
        last = Position(*rows.fetchone())
        self.database.rollback()
        # The last entry is read again: if another is there, or none, something was missed.
        raw = self.server.xrange(self.stream, f"{last.ms}-{last.seq}", count=self.batch + 1)
        entries = [parse(entry) for entry in raw]
        if last.node:
            if not entries or (entries[0].ms, entries[0].seq, entries[0].node) != last[:3]:
                self.move(last, Position())
                now_ms = time.time_ns() // 1_000_000
                self.run("INSERT INTO seat_gaps VALUES (?, ?, ?)", self.stream, last.ms, now_ms)
                self.database.commit()
                return True
            entries = entries[1:]
        if entries:
            self.copy(last, entries)
            self.database.commit()
        elif not last.settled:
            self.settle(last)
            self.database.commit()
        return bool(entries) or not last.settled

    def copy(self, last: Position, entries: list[Entry]) -> Position:
        """Writes entries and what they change."""
        now = last
        for entry in entries:
            # A process that has begun may be one that has crashed before.
            settled = now.settled and entry.node == now.node
            now = Position(entry.ms, entry.seq, entry.node, int(settled))
        self.move(last, now)
        names = ", ".join(["ms", "seq", "node", *COLUMNS])
        marks = ", ".join("?" * (3 + len(COLUMNS)))
        insert = f"INSERT INTO seat_entries ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        for entry in entries:
            values = [entry.fields.get(field) for field in FIELDS]
            # After a gap some are read for a second time.
            if self.run(insert, entry.ms, entry.seq, entry.node, *values).rowcount == 1:
                self.apply(entry)
        return now

    def move(self, last: Position, now: Position) -> None:
        """Takes a step from a position, unless another worker has."""
        sets = ", ".join(f"{column} = ?" for column in Position._fields)
        where = "stream = ? AND ms = ? AND seq = ? AND node = ?"
        values = [*now, self.stream, *last[:3]]
        if self.run(f"UPDATE seat_position SET {sets} WHERE {where}", *values).rowcount != 1:
            self.database.rollback()
            raise RuntimeError(f"another worker copies {self.stream}")

    def apply(self, entry: Entry) -> None:
        """Brings the holds up to date with an entry."""
        fields, ms = entry.fields, entry.ms
        event, pool, session = fields["event"], fields["pool"], fields.get("session", "")
        if event in ("acquired", "imported"):
            self.end(pool, ms, session)
            self.begin(pool, session, fields.get("owner"), int(fields.get("weight", 1)), ms)
        elif event in ("released", "revoked", "replaced"):
            self.end(pool, ms, session)
        elif event == "expired":
            # The timer came later, and CLEANUP may have come before.
            self.end(pool, min(ms, int(fields.get("deadline_ms", ms))), session)
        elif event in ("exported", "dropped", "renamed", "copied"):
            self.end(pool, ms)
            if source := fields.get("from"):
                copy = "INSERT INTO seat_holds (pool, session, owner, weight, from_ms)"
                copy += " SELECT ?, session, owner, weight, ? FROM seat_holds"
                self.run(f"{copy} WHERE pool = ? AND until_ms IS NULL", pool, ms, source)
                if event == "renamed":
                    self.end(source, ms)
            elif event == "copied":
                # It came from elsewhere with sessions that no entry names.
                self.run("UPDATE seat_position SET settled = 0 WHERE stream = ?", self.stream)

    def begin(self, pool: str, session: str, owner: str | None, weight: int, ms: int) -> None:
        hold = "INSERT INTO seat_holds (pool, session, owner, weight, from_ms)"
        self.run(f"{hold} VALUES (?, ?, ?, ?, ?)", pool, session, owner, weight, ms)

    def end(self, pool: str, ms: int, session: str | None = None) -> None:
        end = "UPDATE seat_holds SET until_ms = ? WHERE until_ms IS NULL AND pool = ?"
        if session is None:
            self.run(end, ms, pool)
        else:
            self.run(f"{end} AND session = ?", ms, pool, session)

    def settle(self, last: Position) -> None:
        """Compares the holds with who has seats now, and corrects them."""
        pools = set(self.server.scan_iter(_type="seat-pool"))
        while True:
            unit = self.server.pipeline(transaction=True)
            unit.time()
            unit.xrange(self.stream, f"({last.ms}-{last.seq}" if last.node else "-")
            asked = sorted(pools)
            for pool in asked:
                unit.execute_command("SEAT.SESSIONS", pool, "WITHDETAILS")
            (seconds, micros), raw, *replies = unit.execute(raise_on_error=False)
            named = {fields.get(name) for _, fields in raw for name in (b"pool", b"from")}
            time.sleep(SOON)
            end = f"({raw[-1][0].decode()}" if raw else f"({last.ms}-{last.seq}"
            later = [parse(entry) for entry in self.server.xrange(self.stream, end)]
            is_late = any(entry.fields["event"] in ("renamed", "copied") for entry in later)
            if named - {None} <= pools and not is_late:
                break
            pools |= named - {None}
        now_ms = seconds * 1000 + micros // 1000
        now = self.copy(last, [parse(entry) for entry in raw]) if raw else last
        self.move(now, now._replace(settled=1))

        seen = {}
        for pool, reply in zip(asked, replies):
            # Another type may have taken the name.
            for session, details in pairs(reply if isinstance(reply, (list, dict)) else []):
                seen[text(pool), text(session)] = dict(pairs(details))
        held = self.run("SELECT pool, session FROM seat_holds WHERE until_ms IS NULL")
        held = set(held.fetchall())
        for pool, session in held - seen.keys():
            self.end(pool, now_ms, session)
        for pool, session in seen.keys() - held:
            details = seen[pool, session]
            owner = details[b"owner"]
            owner = None if owner is None else text(owner)
            since = details[b"acquired_at"]
            since_ms = now_ms if since is None else since * 1000
            self.begin(pool, session, owner, details[b"weight"], since_ms)


def parse(raw: tuple[bytes, dict[bytes, bytes]]) -> Entry:
    ms, seq = raw[0].decode().split("-")
    return Entry(int(ms), int(seq), {text(name): text(value) for name, value in raw[1].items()})


def pairs(reply: Any) -> Any:
    """A map, which older protocols answer as a flat list."""
    return reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])


def main() -> None:
    arguments = argparse.ArgumentParser(description="Copies the feed into a database.")
    arguments.add_argument("server", help="redis://host:port, unix:///path/of/socket")
    arguments.add_argument("stream", help="the value of seat.feed")
    arguments.add_argument("database", help="postgresql://..., or a file of SQLite")
    arguments.add_argument("--batch", type=int, default=1000, help="entries of a transaction")
    arguments.add_argument("--pause", type=float, default=10, help="seconds, once all is read")
    arguments.add_argument("--once", action="store_true", help="ends once all is read")
    options = arguments.parse_args()
    if options.database.startswith("postgresql:"):
        import psycopg

        database: Any = psycopg.connect(options.database)
        mark = "%s"
    else:
        database, mark = sqlite3.connect(options.database, timeout=60), "?"
    server = redis.Redis.from_url(options.server)
    worker = Worker(server, options.stream, database, mark, options.batch)
    while True:
        if not worker.step():
            if options.once:
                break
            time.sleep(options.pause)


if __name__ == "__main__":
    main()
