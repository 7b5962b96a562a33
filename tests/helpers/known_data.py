"""The shape, classes and training records that a data set of presets has."""

KNOWN = {"mnist": ((28, 28, 1), 10, 60_000), "fashion": ((28, 28, 1), 10, 60_000),
         "adult": ((108,), 2, 32_561), "credit": ((29,), 2, 284_807),
         "credit-sample": ((29,), 2, 45_569), "table": ((29,), 2, 45_569),
         "features": ((512,), 10, 50_000), "femnist": ((28, 28, 1), 62, 671_585)}
"""By the beginnings of presets' names. Where the files are at hand, test_preset_records.py reads
them; of Kaggle's whole file, CIFAR-10 and Federated EMNIST, this is what is published of them."""
