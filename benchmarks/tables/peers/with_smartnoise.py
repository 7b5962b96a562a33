"""smartnoise-synth (OpenDP): MST and AIM on a table whose transformer is told the schema."""

import job
import numpy as np
from snsynth import Synthesizer
from snsynth.transform import BinTransformer, LabelTransformer, TableTransformer


def transformer(entries):
    """Return what makes a column a bin or a category's number."""
    nullable = bool(entries.get("nullable"))
    if "categories" in entries:
        return LabelTransformer(nullable=nullable)
    return BinTransformer(bins=job.BINS, lower=float(entries["min"]), upper=float(entries["max"]),
                          nullable=nullable)


def main():
    task, columns, frame = job.read()
    rows = [tuple(None if value is None or value != value else value for value in row)
            for row in frame[list(columns)].astype(object).to_numpy()]
    table = TableTransformer([transformer(entries) for entries in columns.values()])
    synthesizer = Synthesizer.create(task["synthesizer"], epsilon=task["epsilon"],
                                     delta=task["delta"])
    synthesizer.fit(rows, transformer=table, preprocessor_eps=0.0)
    synthetic = synthesizer.sample(task["n"])
    job.write(job.pd.DataFrame(np.asarray(synthetic, dtype=object), columns=list(columns)), columns)


if __name__ == "__main__":
    main()
