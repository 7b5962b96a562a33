"""A draft of the schema of a pandas frame, to be read and edited before it is used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dpgen_jax.core.console import tell
from dpgen_jax.core.strict_json import Json
from dpgen_jax.data import frames, python_values, schema_draft

if TYPE_CHECKING:
    import pandas as pd

OBJECTS = {"string": "str", "date": "date", "time": "time", "timedelta": "timedelta64[us]"}
"""Types of columns of objects, by what pandas infers of their values."""


def draft_schema(frame: pd.DataFrame, label: str | None = None, *, types_declared: bool = False
                 ) -> Json:
    """Drafts the schema of a frame: a dict to edit, which `fit` takes as `schema`.

    What it says of the columns is read from the rows, and no epsilon covers it: `read_from_data`
    lists these entries, and `fit` refuses them until they are declared from what is known without
    the rows and taken off that list, or `accept_uncovered` says that they may be published.

    Args:
        frame: The frame.
        label: The column of the classes; None for rows without classes.
        types_declared: Whether the types of pandas count as declared: the `dtype` of each column
            but those of objects, the kind of a whole number and of a truth value, and a Categorical
            with all its categories. That is right only where they were chosen without a look at the
            rows: pandas itself infers types from them.

    Returns:
        The document of the schema.

    Raises:
        UserError: It is no frame, or naming the column at fault.
    """
    types = {str(name).strip(): _type(frame.iloc[:, i]) for i, name in enumerate(frame.columns)}
    durations = [name for i, name in enumerate(types) if types[name].startswith("timedelta64")
                 and name != label and frames.of_seconds(frame.iloc[:, i])]
    cells = frames.cells("frame", frame, schema_draft.with_durations(durations), is_draft=True)
    known = {str(name).strip(): _known(frame.iloc[:, i], str(name).strip() == label)
             for i, name in enumerate(frame.columns)} if types_declared else {}
    made = schema_draft.draft(cells, label, known, types)
    of_types = {f"{str(name).strip()}.dtype" for name, dtype in zip(
        frame.columns, frame.dtypes, strict=True) if types_declared and str(dtype) != "object"}
    made["read_from_data"] = [entry for entry in made["read_from_data"] if entry not in of_types]
    read = made["read_from_data"]
    counted = "" if types_declared else (
        "; the types of pandas are not counted as declared: if they were chosen without the rows, "
        "say types_declared=True")
    if read:
        tell(f"note: {len(read)} entries of this draft were read from the rows, and no epsilon "
             "covers them: declare them, and take them off read_from_data" + counted, sys.stderr)
    return made


def _type(series: pd.Series) -> str:
    """Returns the name of a column's type, as `column_types` has it; of objects by their values."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        values = series.cat.categories
        return "category" if values.dtype.kind not in "biuf" else f"category[{values.dtype}]"
    if series.dtype == object:
        return OBJECTS.get(pd.api.types.infer_dtype(series), "")
    return str(series.dtype)


def _known(series: pd.Series, is_label: bool) -> Json:
    """Returns the entries of a column that its type declares."""
    import pandas as pd

    kind = series.dtype
    if isinstance(kind, pd.CategoricalDtype):
        return {"kind": "ordinal" if kind.ordered and not is_label else "categorical",
                "categories": [python_values.text(category, None) for category in kind.categories]}
    if pd.api.types.is_bool_dtype(kind) and kind.kind == "b" and not hasattr(kind, "na_value"):
        return {"kind": "categorical", "categories": ["False", "True"]} if is_label else {
            "kind": "boolean", "categories": ["False", "True"], "nullable": "false"}
    if kind.kind not in "iu" or is_label:
        return {}
    return {"kind": "integer"} | ({} if hasattr(kind, "na_value") else {"nullable": "false"})
