"""Look at the first lines of a text table: delimiter, header, encoding, text columns.

Only the layout is guessed from the head. Values are checked over the whole file when it
is read, so a word in row 1,000,000 is still found.
"""

import codecs
import csv
import gzip
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from trainer.data.tables import quoted, unique
from trainer.errors import DataError

_HEAD_BYTES, _HEAD_LINES = 2**22, 200
_DELIMITERS = "\t;,| "  # a file with ; may hold , as the decimal mark, hardly the reverse
_BOOLEANS = frozenset({"true", "false", "True", "False", "TRUE", "FALSE"})
NULLS = ("", "#N/A", "#NA", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null",
         "None", "none", "?")  # fmt: skip


@dataclass(frozen=True)
class Layout:
    delimiter: str
    encoding: str
    decimal: str  # "." or ","
    skip: int  # lines before the first row of values
    names: tuple[str, ...]
    booleans: frozenset[str]  # columns of true and false
    text: dict[str, str]  # columns that hold no numbers, each with a value
    longest: int  # characters of the longest line seen
    notes: tuple[str, ...]


def look(path: Path) -> Layout:
    lines, encoding = _head(path)
    blank = next(i for i, line in enumerate(lines) if line.strip())
    delimiter = _delimiter(lines)
    rows = [r for r in _parse(path, lines, delimiter) if r]
    decimal = "," if delimiter != "," and _decimal_commas(rows) else "."
    header = _has_header(rows, decimal)
    names = unique(rows[0] if header else [""] * len(rows[0]))
    body = rows[1:] if header else rows
    if not body:
        raise DataError(f"{path} has a header but no rows.")
    booleans, text = _kinds(names, body, decimal)
    return Layout(delimiter, encoding, decimal, blank + header, names, booleans, text,
                  longest=max(len(line) for line in lines),
                  notes=_notes(header, names, body))  # fmt: skip


def _head(path: Path) -> tuple[list[str], str]:
    """The first whole lines, decoded."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        raw = file.read(_HEAD_BYTES)
    encoding = _encoding(raw)
    text = codecs.getincrementaldecoder(encoding)("strict").decode(raw)
    if "\0" in text:
        raise DataError(f"{path} is not a text table: it holds binary data.")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not any(line.strip() for line in lines):
        raise DataError(f"{path} is empty.")
    cut = len(raw) == _HEAD_BYTES and len(lines) > 1
    return (lines[:-1] if cut else lines)[:_HEAD_LINES], encoding


def _encoding(raw: bytes) -> str:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8-sig")().decode(raw)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8-sig"


def _parse(path: Path, lines: list[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise DataError(f"{path} is not a readable text table ({error}).") from error


def _delimiter(lines: list[str]) -> str:
    """The first that cuts every line into equally many parts, else the one most lines agree on."""
    full = [line for line in lines if line.strip()]
    agreement = {}
    for delimiter in _DELIMITERS:
        width, count = Counter(line.count(delimiter) for line in full).most_common(1)[0]
        agreement[delimiter] = count / len(full) if width else 0.0
    best = max(_DELIMITERS, key=lambda d: agreement[d])
    return best if agreement[best] else ","


def is_number(value: str, decimal: str = ".") -> bool:
    value = value.strip().replace(decimal, ".")
    try:
        float(value)
    except ValueError:
        return False
    return "_" not in value  # Python's 1_000 is no number to anyone else


def _numeric(value: str, decimal: str) -> bool:
    return value.strip() in NULLS or is_number(value, decimal)


def _decimal_commas(rows: list[list[str]]) -> bool:
    values = [v for row in rows[1:] for v in row if "," in v]
    return bool(values) and all(v.count(",") == 1 and is_number(v, ",") for v in values)


def _has_header(rows: list[list[str]], decimal: str) -> bool:
    """Not all numeric, unless the mixture of words and numbers is that of the next line too."""
    first = rows[0]
    if _counts_up(first) or _counts_up(first[1:] if not first[0].strip() else []):
        return True  # 0,1,2,...: a data frame without names
    kinds = [_numeric(v, decimal) for v in first]
    if all(kinds):
        return False
    below = [_numeric(v, decimal) for v in rows[1]] if len(rows) > 1 else []
    return not (any(kinds) and kinds == below)


def _counts_up(values: list[str]) -> bool:
    return len(values) > 1 and [v.strip() for v in values] == [str(i) for i in range(len(values))]


def _kinds(
    names: tuple[str, ...], body: list[list[str]], decimal: str
) -> tuple[frozenset[str], dict[str, str]]:
    booleans, text = set(), {}
    for j, name in enumerate(names):
        seen = [row[j].strip() for row in body if len(row) > j and row[j].strip() not in NULLS]
        words = [v for v in seen if not is_number(v, decimal)]
        if words and all(v in _BOOLEANS for v in seen):
            booleans.add(name)
        elif words:
            text[name] = words[0]
    return frozenset(booleans), text


def _notes(header: bool, names: tuple[str, ...], body: list[list[str]]) -> tuple[str, ...]:
    notes = []
    if not header:
        notes.append(f"No header line was found; the columns are called {quoted(names, 3)}.")
    counted = [row[0].strip() for row in body]
    if len(body) > 2 and any(counted == [str(i + k) for i in range(len(body))] for k in (0, 1)):
        notes.append(
            f"Column '{names[0]}' only counts the rows; leave it out with "
            f"--set 'data.drop=[\"{names[0]}\"]'."
        )
    return tuple(notes)
