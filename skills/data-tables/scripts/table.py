"""Looks into tables: CSV, TSV and JSON lines. Needs nothing but Python 3.9.

    python3 table.py profile FILE            what is in each column, and what looks wrong
    python3 table.py sql QUERY FILE ...      a query over files; each is a table named like it

Queries print CSV. Empty fields are NULL. Columns of whole numbers are INTEGER, of other numbers
REAL, all others TEXT; so are codes: digits with leading zeros, and more than 18 of them.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import sys
from collections import Counter
from pathlib import Path

KINDS = {
    "whole": re.compile(r"[+-]?(0|[1-9][0-9]{0,17})"),
    "code": re.compile(r"[0-9]+"),
    "number": re.compile(r"[+-]?((0|[1-9][0-9]*)\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"),
}
csv.field_size_limit(1 << 30)


class Problem(Exception):
    """What the user can put right."""


def text_of(path: Path) -> str:
    """Return the text: UTF-8, UTF-16 with mark, else Latin-1."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from error
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def load(path: Path) -> tuple[list[str], list[list[str]], list[str]]:
    """Return columns, rows, and what is wrong with the rows."""
    text = text_of(path)
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return from_json(path, text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter(path, text))
    try:
        rows = [row for row in reader if row]
    except csv.Error as error:
        raise Problem(f"{path}: line {reader.line_num}: {error}") from error
    if not rows:
        raise Problem(f"{path}: the file is empty")
    names, wrong = unique([name.strip() for name in rows[0]]), []
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(names):
            wrong.append(f"row {number} has {len(row)} fields, not {len(names)}")
            row[:] = (row + [""] * len(names))[: len(names)]
    return names, rows[1:], wrong


def from_json(path: Path, text: str) -> tuple[list[str], list[list[str]], list[str]]:
    """Return a table of one object for each line."""
    objects: list[dict[str, object]] = []
    wrong: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            objects.append({**json.loads(line)})
        except (ValueError, TypeError):
            wrong.append(f"line {number} is not a JSON object")
    if not objects:
        raise Problem(f"{path}: no line is a JSON object")
    names = list(dict.fromkeys(name for one in objects for name in one))
    return unique(names), [[plain(one.get(name)) for name in names] for one in objects], wrong


def plain(value: object) -> str:
    """Return a JSON value as a field."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def delimiter(path: Path, text: str) -> str:
    """Return the delimiter that is most frequent in the first line; a tab for .tsv files."""
    first = text.partition("\n")[0]
    return "\t" if path.suffix.lower() == ".tsv" else max(",;\t|", key=first.count)


def unique(names: list[str]) -> list[str]:
    """Return names that differ, whatever their case."""
    taken: set[str] = set()
    found: list[str] = []
    for place, name in enumerate(names, start=1):
        base = new = name or f"column{place}"
        count = 2
        while new.lower() in taken:
            new, count = f"{base}_{count}", count + 1
        taken.add(new.lower())
        found.append(new)
    return found


def kind(value: str) -> str:
    """Return the kind of a filled field."""
    return next((name for name, form in KINDS.items() if form.fullmatch(value)), "text")


def kind_of(values: list[str]) -> str:
    """Return the kind of all fields that are not empty."""
    kinds = {kind(value) for value in values if value}
    if kinds in ({"whole", "number"}, {"whole", "code"}):
        kinds -= {"whole"}
    return kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "text"


def profile(path: Path) -> list[str]:
    """Return a description of a table, as lines."""
    names, rows, wrong = load(path)
    lines = [f"{path.name}: {len(rows)} rows, {len(names)} columns"]
    for place, name in enumerate(names):
        values = [row[place] for row in rows]
        lines.append(f"- {name}: {column(values)}")
        wrong += [f"{name}: {one}" for one in suspicions(values)]
    again = len(rows) - len({tuple(row) for row in rows})
    wrong += [f"rows that repeat another: {again}"] if again else []
    lines += [f"! {one}" for one in wrong[:20]]
    return lines + ([f"! … and {len(wrong) - 20} more"] if len(wrong) > 20 else [])


def column(values: list[str]) -> str:
    """Return a description of a column."""
    filled = [value for value in values if value]
    counts = Counter(filled)
    what = kind_of(filled)
    parts = [what, f"{len(values) - len(filled)} empty", f"{len(counts)} distinct"]
    if what in ("whole", "number"):
        low, high = min(filled, key=float), max(filled, key=float)
        parts.append(f"{low} to {high}, mean {sum(map(float, filled)) / len(filled):.6g}")
    elif what == "date":
        parts.append(f"{min(filled)} to {max(filled)}")
    elif len(counts) < len(filled):
        common = (f"{value[:40]!r} {count}" for value, count in counts.most_common(3))
        parts.append(f"most often {', '.join(common)}")
    elif filled:
        parts.append(f"such as {filled[0][:40]!r}")
    return ", ".join(parts)


def suspicions(values: list[str]) -> list[str]:
    """Return the likely errors in a column."""
    filled = [value for value in values if value]
    found: list[str] = []
    padded = sum(value != value.strip() for value in filled)
    if padded:
        found.append(f"fields that begin or end with blanks: {padded}")
    kinds = Counter(map(kind, filled))
    (most, count), *others = kinds.most_common() or [("", 0)]
    if others and most != "text" and kind_of(filled) == "mixed":
        odd = next(value for value in filled if kind(value) == others[0][0])
        found.append(f"{count} fields are {most}, but {others[0][1]} are not, such as {odd[:40]!r}")
    spelled = Counter(value.strip().lower() for value in set(filled))
    twice = sum(number > 1 for number in spelled.values())
    if twice:
        found.append(f"values spelled in more than one way: {twice}")
    return found


SQL_TYPES = {"whole": "INTEGER", "number": "REAL"}


def query(sql: str, paths: list[Path]) -> list[list[object]]:
    """Return heading and rows of a query."""
    base = sqlite3.connect(":memory:")
    tables: list[str] = []
    try:
        for path in paths:
            name = re.sub(r"\W", "_", path.stem)
            tables.append(f"{name} ({', '.join(fill(base, name, path))})")
        cursor = base.execute(sql)
        heading: list[object] = [one[0] for one in cursor.description or ()]
        return [heading, *map(list, cursor)]
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise Problem(f"{error}. Tables: {'; '.join(tables)}") from error


def fill(base: sqlite3.Connection, table: str, path: Path) -> list[str]:
    """Make a table of a file and return its columns."""
    names, rows, _ = load(path)
    columns: list[str] = []
    for place, name in enumerate(names):
        quoted = name.replace('"', '""')
        what = SQL_TYPES.get(kind_of([row[place] for row in rows]), "TEXT")
        columns.append(f'"{quoted}" {what}')
    base.execute(f'CREATE TABLE "{table}" ({", ".join(columns)})')
    marks = ", ".join("?" * len(names))
    values = ([field or None for field in row] for row in rows)
    base.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
    return names


def main(arguments: list[str]) -> int:
    """Do what the command line says."""
    out = sys.stdout
    if hasattr(out, "reconfigure"):
        out.reconfigure(encoding="utf-8")
    try:
        if arguments[:1] == ["profile"] and len(arguments) > 1:
            for path in arguments[1:]:
                out.write("\n".join(profile(Path(path))) + "\n")
        elif arguments[:1] == ["sql"] and len(arguments) > 2:
            rows = query(arguments[1], [Path(one) for one in arguments[2:]])
            csv.writer(out, lineterminator="\n").writerows(rows)
        else:
            sys.stderr.write(__doc__ or "")
            return 2
    except Problem as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
