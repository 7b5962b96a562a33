"""smartnoise-synth (OpenDP): its synthesizers on a table whose transformer is told the schema."""

import job
import numpy as np
from snsynth import Synthesizer
from snsynth.transform import (
    BinTransformer,
    ChainTransformer,
    LabelTransformer,
    MinMaxTransformer,
    OneHotEncoder,
    TableTransformer,
)


def transformer(entries, cube):
    """Return what a column becomes: a bin or a category's number, or for networks floats."""
    nullable = bool(entries.get("nullable"))
    if "categories" in entries:
        label = LabelTransformer(nullable=nullable)
        return label if cube else ChainTransformer([label, OneHotEncoder()])
    low, high = float(entries["min"]), float(entries["max"])
    if cube:
        return BinTransformer(bins=job.BINS, lower=low, upper=high, nullable=nullable)
    return MinMaxTransformer(lower=low, upper=high, nullable=nullable)


def main():
    """Fit and draw."""
    task, columns, frame = job.read()
    cube = task["synthesizer"] in ("mst", "aim", "mwem")
    rows = [tuple(None if value is None or value != value else value for value in row)
            for row in frame[list(columns)].astype(object).to_numpy()]
    table = TableTransformer([transformer(entries, cube) for entries in columns.values()])
    options = {"delta": task["delta"]} if task["synthesizer"] != "mwem" else {}
    synthesizer = Synthesizer.create(task["synthesizer"], epsilon=task["epsilon"], **options)
    synthesizer.fit(rows, transformer=table, preprocessor_eps=0.0)
    drawn = synthesizer.sample(task["n"])
    job.write(job.pd.DataFrame(np.asarray(drawn, dtype=object), columns=list(columns)), columns)


if __name__ == "__main__":
    main()
