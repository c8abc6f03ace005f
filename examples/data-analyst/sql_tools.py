"""Tools that read CSV files and SQLite databases with SQL, and change nothing."""

import csv
import io
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deep_agent_mcp import tool

DATA = Path(os.environ.get("DATA_DIR") or Path(__file__).with_name("data"))
MOST_ROWS = 100
SECONDS = 10.0
READS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def value(text: str) -> str | int | float | None:
    """Return a field as a number if it is one; codes with leading zeros stay text."""
    if text == "":
        return None
    if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?(0|[1-9]\d*)\.\d+", text) else text


def load(db: sqlite3.Connection, file: Path) -> None:
    """Make a table of a CSV file."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        head, *rows = csv.reader(lines)
    table = quoted(file.stem)
    db.execute(f"CREATE TABLE {table} ({', '.join(map(quoted, head))})")
    fields = [[value(one) for one in (row + [""] * len(head))[: len(head)]] for row in rows]
    db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(head))})", fields)


@contextmanager
def opened() -> Iterator[sqlite3.Connection]:
    """Open all data; only reading is allowed, and only for a while."""
    db = sqlite3.connect(":memory:", uri=True)
    try:
        for file in sorted(DATA.glob("*.csv")):
            load(db, file)
        for file in sorted(DATA.glob("*.db")):
            db.execute(f"ATTACH ? AS {quoted(file.stem)}", (f"{file.resolve().as_uri()}?mode=ro",))
        ends = time.monotonic() + SECONDS
        db.set_progress_handler(lambda: time.monotonic() > ends, 10_000)
        yield db
    finally:
        db.close()


def allowed(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY


@tool(read_only=True)
def tables() -> str:
    """List all tables with their columns, the number of rows, and a sample of three rows."""
    with opened() as db:
        lines: list[str] = []
        for _, schema, _ in db.execute("PRAGMA database_list").fetchall():
            names = (
                f"SELECT name FROM {quoted(schema)}.sqlite_master WHERE type IN ('table', 'view')"
            )
            for (name,) in db.execute(names).fetchall():
                of = quoted(name) if schema == "main" else f"{quoted(schema)}.{quoted(name)}"
                (count,) = db.execute(f"SELECT count(*) FROM {of}").fetchone()
                lines += [f"## {of}, {count} rows", as_csv(db.execute(f"SELECT * FROM {of}"), 3)]
        return "\n".join(lines) or f"There are no *.csv and *.db files in {DATA}."


@tool(read_only=True)
def query(sql: str) -> str:
    """Run one SELECT in SQLite; return its result as CSV, at most 100 rows.

    Args:
        sql: The query. Other statements are refused.
    """
    return answer(sql)


def answer(sql: str) -> str:
    with opened() as db:
        db.set_authorizer(allowed)
        try:
            return as_csv(db.execute(sql), MOST_ROWS)
        except sqlite3.Error as error:
            raise ValueError(f"SQLite refused the query: {error}") from None


def as_csv(found: sqlite3.Cursor, most: int) -> str:
    rows = found.fetchmany(most + 1)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([one[0] for one in found.description or ()])
    writer.writerows(rows[:most])
    more = "… more rows follow; use LIMIT, WHERE or GROUP BY\n" if len(rows) > most else ""
    return out.getvalue() + more
