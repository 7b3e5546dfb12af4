"""Text tables (.csv, .tsv, .txt, also .gz), streamed as float64.

`detect_layout` guesses delimiter, header, encoding, decimal mark and the type of each column from
the first lines. `read_csv` then checks every value, so a word in row 1,000,000 is still found.
"""

import codecs
import csv
import gzip
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from trainer.data.dataset import DataOptions, Notes, RawData
from trainer.data.sources import Rows
from trainer.data.tables import choose_columns, quote_names, refuse_text, to_matrix
from trainer.errors import DataError, one_line

_HEAD_BYTES, _HEAD_LINES = 2**22, 200  # what the layout is detected from
_BLOCK_BYTES = 2**22
# In this order: a file with ; as the delimiter may use , as the decimal mark, but not vice versa.
_DELIMITERS = "\t;,| "
_BOOLEANS = frozenset({"true", "false", "True", "False", "TRUE", "FALSE"})
_NULLS = ("", "#N/A", "#NA", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null",
          "None", "none", "?")  # fmt: skip
# Arrow's messages, from which ours are made.
_BAD_VALUE = re.compile(r"column #(\d+): (?:Row #(\d+): )?CSV conversion error.*?value '(.*)'")
_BAD_WIDTH = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


@dataclass(frozen=True)
class Layout:
    """How a text table is written."""

    delimiter: str
    encoding: str
    decimal: str  # "." or ","
    skip: int  # lines before the first row of values
    names: tuple[str, ...]
    booleans: frozenset[str]  # columns of true and false
    text: dict[str, str]  # columns that are not numeric, with a value each
    longest_line: int  # characters
    notes: Notes


def read_csv(path: Path, options: DataOptions) -> RawData:
    """Describe a text table. Raises DataError if a chosen column is not numeric."""
    layout = detect_layout(path)
    names = choose_columns(path, layout.names, options)
    refuse_text(path, {n: layout.text[n] for n in names if n in layout.text})
    return RawData((path,), len(names), np.dtype(np.float64),
                   lambda: _stream(path, layout, names),
                   features=names, notes=layout.notes)  # fmt: skip


def detect_layout(path: Path) -> Layout:
    """Guess the layout of a text table from its first lines.

    Raises DataError if the file is empty, is not text, or has a header but no rows.
    """
    lines, encoding = _read_head(path)
    blank_lines = next(i for i, line in enumerate(lines) if line.strip())
    delimiter = _detect_delimiter(lines)
    rows = [r for r in _split_lines(path, lines, delimiter) if r]
    decimal = "," if delimiter != "," and _has_decimal_commas(rows) else "."
    header = _has_header(rows, decimal)
    names = _name_columns(rows[0] if header else [""] * len(rows[0]))
    body = rows[1:] if header else rows
    if not body:
        raise DataError(f"{path} has a header but no rows.")
    booleans, text = _detect_column_types(names, body, decimal)
    return Layout(delimiter, encoding, decimal, blank_lines + header, names, booleans, text,
                  longest_line=max(len(line) for line in lines),
                  notes=_make_notes(header, names, body))  # fmt: skip


def _read_head(path: Path) -> tuple[list[str], str]:
    """Return the first complete lines, decoded, and the encoding."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        raw = file.read(_HEAD_BYTES)
    encoding = _detect_encoding(raw)
    text = codecs.getincrementaldecoder(encoding)("strict").decode(raw)
    if "\0" in text:
        raise DataError(f"{path} is not a text table: it contains binary data.")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not any(line.strip() for line in lines):
        raise DataError(f"{path} is empty.")
    is_cut = len(raw) == _HEAD_BYTES and len(lines) > 1  # the last line is incomplete
    return (lines[:-1] if is_cut else lines)[:_HEAD_LINES], encoding


def _detect_encoding(raw: bytes) -> str:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8-sig")().decode(raw)
    except UnicodeDecodeError:
        return "latin-1"  # every sequence of bytes is valid Latin-1
    return "utf-8-sig"


def _split_lines(path: Path, lines: list[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise DataError(f"{path} is not a readable text table ({error}).") from error


def _detect_delimiter(lines: list[str]) -> str:
    """Return the delimiter that occurs equally often in the largest share of the lines."""
    filled = [line for line in lines if line.strip()]
    agreement = {}
    for delimiter in _DELIMITERS:
        width, count = Counter(line.count(delimiter) for line in filled).most_common(1)[0]
        agreement[delimiter] = count / len(filled) if width else 0.0
    best = max(_DELIMITERS, key=lambda d: agreement[d])  # the first of equals
    return best if agreement[best] else ","


def _is_number(value: str, decimal: str = ".") -> bool:
    value = value.strip().replace(decimal, ".")
    try:
        float(value)
    except ValueError:
        return False
    return "_" not in value  # only Python reads 1_000 as a number


def _is_number_or_null(value: str, decimal: str) -> bool:
    return value.strip() in _NULLS or _is_number(value, decimal)


def _has_decimal_commas(rows: list[list[str]]) -> bool:
    values = [v for row in rows[1:] for v in row if "," in v]
    return bool(values) and all(v.count(",") == 1 and _is_number(v, ",") for v in values)


def _has_header(rows: list[list[str]], decimal: str) -> bool:
    """The first row is a header if it is not numeric and its types differ from the second row's."""
    first = rows[0]
    if _counts_up(first) or _counts_up(first[1:] if not first[0].strip() else []):
        return True  # 0,1,2,...: a data frame without column names
    kinds = [_is_number_or_null(v, decimal) for v in first]
    if all(kinds):
        return False
    kinds_below = [_is_number_or_null(v, decimal) for v in rows[1]] if len(rows) > 1 else []
    return not (any(kinds) and kinds == kinds_below)


def _counts_up(values: list[str]) -> bool:
    return len(values) > 1 and [v.strip() for v in values] == [str(i) for i in range(len(values))]


def _name_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Make names unique: number columns without a name, and count repeated names."""
    out: list[str] = []
    for i, given in enumerate(names):
        base = given.strip() or f"column{i + 1}"
        name, k = base, 1
        while name in out:
            k += 1
            name = f"{base}_{k}"
        out.append(name)
    return tuple(out)


def _detect_column_types(
    names: tuple[str, ...], body: list[list[str]], decimal: str
) -> tuple[frozenset[str], dict[str, str]]:
    """Return the columns of booleans, and the columns of text with a value each.

    All other columns are numeric.
    """
    booleans, text = set(), {}
    for j, name in enumerate(names):
        values = [row[j].strip() for row in body if len(row) > j and row[j].strip() not in _NULLS]
        words = [v for v in values if not _is_number(v, decimal)]
        if words and all(v in _BOOLEANS for v in values):
            booleans.add(name)
        elif words:
            text[name] = words[0]
    return frozenset(booleans), text


def _make_notes(header: bool, names: tuple[str, ...], body: list[list[str]]) -> Notes:
    notes = []
    if not header:
        notes.append(f"No header line was found; the columns are named {quote_names(names, 3)}.")
    first_column = [row[0].strip() for row in body]
    counters = [[str(i + k) for i in range(len(body))] for k in (0, 1)]  # from 0 and from 1
    if len(body) > 2 and first_column in counters:
        notes.append(
            f"Column '{names[0]}' only counts the rows. Leave it out with "
            f"--set 'data.drop=[\"{names[0]}\"]'."
        )
    return tuple(notes)


def _stream(path: Path, layout: Layout, names: tuple[str, ...]) -> Iterator[Rows]:
    """Yield the rows of the columns `names` in blocks, as float64 with NaN for missing values."""
    try:
        compression = "gzip" if path.suffix == ".gz" else None
        with pa.input_stream(str(path), compression=compression) as raw:
            for batch in _open_reader(raw, layout, names):
                if batch.num_rows:
                    yield to_matrix(batch.columns, batch.num_rows, np.dtype(np.float64))
    except pa.ArrowInvalid as error:
        raise DataError(_explain_arrow_error(path, layout, one_line(error))) from error


def _open_reader(raw: Any, layout: Layout, names: tuple[str, ...]) -> Any:
    types = {n: pa.bool_() if n in layout.booleans else pa.float64() for n in names}
    return arrow_csv.open_csv(
        raw,
        read_options=arrow_csv.ReadOptions(
            use_threads=False,  # with several threads, errors do not name the row
            block_size=max(_BLOCK_BYTES, 16 * layout.longest_line),
            skip_rows=layout.skip,
            column_names=list(layout.names),
            encoding="utf8" if layout.encoding == "utf-8-sig" else layout.encoding,
        ),
        parse_options=arrow_csv.ParseOptions(delimiter=layout.delimiter),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=list(names),
            null_values=list(_NULLS),
            decimal_point=layout.decimal,
        ),
    )


def _explain_arrow_error(path: Path, layout: Layout, message: str) -> str:
    if value := _BAD_VALUE.search(message):
        name, line = layout.names[int(value[1])], f" in line {value[2]}" if value[2] else ""
        return (
            f"{path} has the value '{value[3]}'{line} of column '{name}', which is not a number. "
            f"Correct it, or leave out the column with --set 'data.drop=[\"{name}\"]'."
        )
    if width := _BAD_WIDTH.search(message):
        line = f"line {width[1]}" if width[1] else "a line"
        return f"{path} is ragged: {line} has {width[3]} values, but {width[2]} are expected."
    return f"{path} is not a readable text table ({message})."
