"""`parquet:FILE`: tables whose cells may be typed, read in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpgen_jax.core import reading
from dpgen_jax.core.types import TableSpec, UserError
from dpgen_jax.data import frames, tables
from dpgen_jax.data.base import Dataset
from dpgen_jax.data.csv_files import BLOCK_CELLS, CELL_BYTES
from dpgen_jax.data.parsing import Cells, joined
from dpgen_jax.data.schema import Schema

ARROW = {"halffloat": "float16", "float": "float32", "double": "float64", "string": "str",
         "large_string": "str", "date32": "date", "date64": "date", "time32": "time",
         "time64": "time"}
"""Types by Arrow's names, where they have other names."""


def parquet(path_text: str, schema: Schema, test_path: str | None = None) -> Dataset:
    """Loads a Parquet file. Nulls and NaN are null; dates may be texts in the declared format too.

    Args:
        path_text: The file, with exactly the columns of the schema, in any order.
        schema: The schema.
        test_path: The file of the held-out part, alike; or None.

    Returns:
        The data set.

    Raises:
        UserError: As `tables.csv`, with the row of the file, from 0.
    """
    return tables.of_files(path_text, schema, test_path, lambda path: blocks(path, schema.spec))


def read(path: Path, spec: TableSpec | None = None) -> Cells:
    """Reads all cells of a Parquet file into memory, for a draft of its schema.

    Args:
        path: The file.
        spec: As of `blocks`.

    Raises:
        UserError: As `blocks`, and for cells that would take more memory than is allowed.
    """
    parts, count = [], 0
    for part in blocks(path, spec, is_draft=True):
        count += len(part.rows) * len(part.columns)
        reading.require_memory(f"{path}: a table of {count:,} cells", CELL_BYTES * count)
        parts.append(part)
    return joined(parts)


def types(path: Path) -> dict[str, str]:
    """Returns the types of a Parquet file's columns by name, as `column_types` names them.

    They are facts of the file, and as private as it is. One that has no such name is left out.

    Args:
        path: The file, which `read` reads.
    """
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(path)
    named = {name.strip(): _type(str(kind)) for name, kind in zip(
        schema.names, schema.types, strict=True)}
    return {name: kind for name, kind in named.items() if kind}


def durations(path: Path) -> list[str]:
    """Returns the columns of a Parquet file whose values are durations of whole seconds.

    Args:
        path: The file, which `read` reads.
    """
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(path)
    return [name.strip() for name, kind in zip(schema.names, schema.types, strict=True)
            if _type(str(kind)).startswith("timedelta64") and frames.of_seconds(
                pyarrow.parquet.read_table(path, columns=[name])[name].to_pandas())]


def _type(arrow: str) -> str:
    """Returns the type of a column by Arrow's name of it, or an empty text."""
    base, _, rest = arrow.partition("[")
    if base in ("timestamp", "duration"):
        unit = rest.rstrip("]").partition(",")[0]
        return f"{'datetime64' if base == 'timestamp' else 'timedelta64'}[{unit}]"
    if arrow.startswith("dictionary<values=string"):
        return "category"
    return ARROW.get(base, base)


def blocks(path: Path, spec: TableSpec | None, is_draft: bool = False) -> Iterator[Cells]:
    """Yields the cells of a Parquet file, some rows at a time; of one without rows an empty block.

    Args:
        path: The file.
        spec: The schema, by which dates and booleans become texts; None for texts as of Python.
        is_draft: As of `frames.cells`.

    Yields:
        The cells of the next rows.

    Raises:
        UserError: The file cannot be read, or a package that reads it is missing.
    """
    reading.require_parquet()
    import pyarrow
    import pyarrow.parquet

    reading.require_regular(path)
    first = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            rows = max(1, BLOCK_CELLS // max(1, len(file.schema_arrow.names)))
            batches = (file.iter_batches(rows) if file.metadata.num_rows
                       else [file.schema_arrow.empty_table()])
            for batch in batches:
                frame = batch.to_pandas(integer_object_nulls=True, ignore_metadata=True)
                yield frames.cells(str(path), frame, spec, first, is_draft)
                first += len(frame)
    except (pyarrow.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} cannot be read as Parquet ({reason}); write it again") from error
