"""Parquet tables, a batch of rows at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainer.data.dataset import Found
from trainer.data.options import DataOptions
from trainer.data.source import Rows, block_rows
from trainer.data.tables import choose_columns, matrix, refuse_text
from trainer.errors import DataError, one_line


def read_parquet(path: Path, options: DataOptions) -> Found:
    with _open(path) as file:
        schema = file.schema_arrow
        names = choose_columns(path, schema.names, options)
        refuse_text(path, _not_numeric(file, schema, names))
        if file.metadata.num_rows == 0:
            raise DataError(f"{path} has columns but no rows.")
    dtype = _dtype([schema.field(n).type for n in names])
    return Found((path,), len(names), dtype, lambda: _rows(path, names, dtype), features=names)


def _open(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise DataError(f"{path} is not a readable Parquet file ({one_line(error)}).") from error


def _is_numeric(kind: Any) -> bool:
    t = pa.types
    plain = t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind)
    return bool(plain or t.is_decimal(kind) or t.is_null(kind))


def _not_numeric(file: Any, schema: Any, names: tuple[str, ...]) -> dict[str, object]:
    """Columns that hold no numbers, each with its first value."""
    text = [n for n in names if not _is_numeric(schema.field(n).type)]
    if not text:
        return {}
    first = next(file.iter_batches(batch_size=100, columns=text), None)
    values: dict[str, object] = {}
    for name in text:
        seen = [v for v in (first[name].to_pylist() if first is not None else []) if v is not None]
        values[name] = seen[0] if seen else schema.field(name).type
    return values


def _dtype(kinds: list[Any]) -> np.dtype[Any]:
    """float32 where it holds every value of every column exactly."""
    t = pa.types
    small = (t.is_boolean, t.is_int8, t.is_uint8, t.is_int16, t.is_uint16, t.is_float16,
             t.is_float32)  # fmt: skip
    exact = all(any(test(kind) for test in small) for kind in kinds)
    return np.dtype(np.float32 if exact else np.float64)


def _rows(path: Path, names: tuple[str, ...], dtype: np.dtype[Any]) -> Iterator[Rows]:
    try:
        with _open(path) as file:
            for batch in file.iter_batches(batch_size=block_rows(len(names)), columns=list(names)):
                columns = [batch.column(n) for n in names]
                yield matrix(columns, batch.num_rows, dtype)
    except pa.ArrowException as error:
        raise DataError(f"{path} is damaged or cut short ({one_line(error)}).") from error
