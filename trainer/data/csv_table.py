"""Text tables (.csv .tsv .txt, also .gz), streamed as float64."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from trainer.data.csv_layout import NULLS, Layout, look
from trainer.data.dataset import Found
from trainer.data.options import DataOptions
from trainer.data.source import Rows
from trainer.data.tables import choose_columns, matrix, refuse_text
from trainer.errors import DataError, one_line

_BLOCK_BYTES = 2**22
_BAD_VALUE = re.compile(r"column #(\d+): (?:Row #(\d+): )?CSV conversion error.*?value '(.*)'")
_BAD_WIDTH = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


def read_csv(path: Path, options: DataOptions) -> Found:
    layout = look(path)
    names = choose_columns(path, layout.names, options)
    refuse_text(path, {n: layout.text[n] for n in names if n in layout.text})
    return Found((path,), len(names), np.dtype(np.float64), lambda: _rows(path, layout, names),
                 features=names, notes=layout.notes)  # fmt: skip


def _rows(path: Path, layout: Layout, names: tuple[str, ...]) -> Iterator[Rows]:
    try:
        with pa.input_stream(str(path), compression=_compression(path)) as raw:
            for batch in _reader(raw, layout, names):
                if batch.num_rows:
                    yield matrix(batch.columns, batch.num_rows, np.dtype(np.float64))
    except pa.ArrowInvalid as error:
        raise DataError(_sentence(path, layout, one_line(error))) from error


def _compression(path: Path) -> str | None:
    return "gzip" if path.suffix == ".gz" else None


def _reader(raw: Any, layout: Layout, names: tuple[str, ...]) -> Any:
    """One thread: several would lose the row numbers our sentences need."""
    kinds = {n: pa.bool_() if n in layout.booleans else pa.float64() for n in names}
    return arrow_csv.open_csv(
        raw,
        read_options=arrow_csv.ReadOptions(
            use_threads=False,
            block_size=max(_BLOCK_BYTES, 16 * layout.longest),
            skip_rows=layout.skip,
            column_names=list(layout.names),
            encoding="utf8" if layout.encoding == "utf-8-sig" else layout.encoding,
        ),
        parse_options=arrow_csv.ParseOptions(delimiter=layout.delimiter),
        convert_options=arrow_csv.ConvertOptions(
            column_types=kinds,
            include_columns=list(names),
            null_values=list(NULLS),
            decimal_point=layout.decimal,
        ),
    )


def _sentence(path: Path, layout: Layout, message: str) -> str:
    if value := _BAD_VALUE.search(message):
        name, row = layout.names[int(value[1])], f" in line {value[2]}" if value[2] else ""
        return (
            f"{path} has the value '{value[3]}'{row} of column '{name}', which is not a number; "
            f"correct it or leave the column out with --set 'data.drop=[\"{name}\"]'."
        )
    if width := _BAD_WIDTH.search(message):
        row = f"line {width[1]}" if width[1] else "a line"
        return f"{path} is ragged: {row} has {width[3]} values where {width[2]} are expected."
    return f"{path} is not a readable text table ({message})."
