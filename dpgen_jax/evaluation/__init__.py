"""Measurements of a release: utility, fidelity, and membership attacks; and the report on them.

Everything here runs after training, on a release and on records that the data holder names. Scores
that are computed from real records are not covered by epsilon, and metrics.json lists them.

| module | idea |
|---|---|
| `results` | the protocol: real and synthetic records and a setting in, findings out |
| `utility`, `networks` | measures of images: what classifiers learn from them |
| `fidelity`, `pretrained` | measures of images: distances of features, and public networks |
| `prediction` | measures of tables: what models learn from them, also for subgroups |
| `marginals` | measures of tables: distances of columns, queries, detection, the schema |
| `comparison`, `losses`, `relations` | what rows of a table lack, in sizes that compare |
| `two_tables` | any synthetic and any real table, without a schema |
| `membership` | attacks on images and tables, and the bound that a guarantee sets |
| `assess` | `dg.evaluate`: all measures of a release, and the files that are written |
| `assessment` | the findings, the verdict, and their views as JSON and on a terminal |
| `report`, `figures` | the pages: report, comparison, and the data holder's own |
"""
