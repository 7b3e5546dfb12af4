"""Parquet tables, streamed in batches of rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainer.data.dataset import DataOptions, RawData
from trainer.data.sources import Rows, block_rows
from trainer.data.tables import choose_columns, refuse_text, to_matrix
from trainer.errors import DataError, one_line


def read_parquet(path: Path, options: DataOptions) -> RawData:
    """Describe a Parquet table. Raises DataError if a chosen column is not numeric."""
    with _open(path) as file:
        schema = file.schema_arrow
        names = choose_columns(path, schema.names, options)
        refuse_text(path, _find_text_columns(file, schema, names))
        if file.metadata.num_rows == 0:
            raise DataError(f"{path} has columns but no rows.")
    dtype = _choose_dtype([schema.field(n).type for n in names])
    return RawData((path,), len(names), dtype, lambda: _stream(path, names, dtype), features=names)


def _open(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise DataError(f"{path} is not a readable Parquet file ({one_line(error)}).") from error


def _is_numeric(arrow_type: Any) -> bool:
    t = pa.types
    is_plain = t.is_integer(arrow_type) or t.is_floating(arrow_type) or t.is_boolean(arrow_type)
    return bool(is_plain or t.is_decimal(arrow_type) or t.is_null(arrow_type))


def _find_text_columns(file: Any, schema: Any, names: tuple[str, ...]) -> dict[str, object]:
    """Return the columns that are not numeric, each with a value (or its type if it has none)."""
    text = [n for n in names if not _is_numeric(schema.field(n).type)]
    if not text:
        return {}
    batch = next(file.iter_batches(batch_size=100, columns=text), None)
    examples: dict[str, object] = {}
    for name in text:
        values = batch[name].to_pylist() if batch is not None else []
        present = [v for v in values if v is not None]
        examples[name] = present[0] if present else schema.field(name).type
    return examples


def _choose_dtype(arrow_types: list[Any]) -> np.dtype[Any]:
    """Return float32 if it represents every value of these types exactly, else float64."""
    t = pa.types
    small = (t.is_boolean, t.is_int8, t.is_uint8, t.is_int16, t.is_uint16, t.is_float16,
             t.is_float32)  # fmt: skip
    is_exact = all(any(is_type(kind) for is_type in small) for kind in arrow_types)
    return np.dtype(np.float32 if is_exact else np.float64)


def _stream(path: Path, names: tuple[str, ...], dtype: np.dtype[Any]) -> Iterator[Rows]:
    try:
        with _open(path) as file:
            for batch in file.iter_batches(batch_size=block_rows(len(names)), columns=list(names)):
                columns = [batch.column(n) for n in names]
                yield to_matrix(columns, batch.num_rows, dtype)
    except pa.ArrowException as error:
        raise DataError(f"{path} is damaged or cut short ({one_line(error)}).") from error
