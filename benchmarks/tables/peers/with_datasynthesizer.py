"""DataSynthesizer: its correlated mode, PrivBayes with Laplace noise and twenty bins of a number.

Told are bounds and categories. Its tables range over the values that are there, and shares of nulls
are exact. Its noise is seeded by a number, here one from the operating system; the default is
always the same.
"""

import json
import secrets

import job
from DataSynthesizer.DataDescriber import DataDescriber
from DataSynthesizer.DataGenerator import DataGenerator

KINDS = {"integer": "Integer", "continuous": "Float"}


def main():
    task, columns, frame = job.read()
    rows, description = str(job.FOLDER / "rows.csv"), str(job.FOLDER / "description.json")
    frame.to_csv(rows, index=False)
    domains = job.FOLDER / "domains.json"
    domains.write_text(json.dumps({name: entries["categories"] for name, entries in columns.items()
                                   if "categories" in entries}))
    describer = DataDescriber(histogram_bins=job.BINS)
    describer.describe_dataset_in_correlated_attribute_mode(
        rows, k=task["parents"], epsilon=task["epsilon"], seed=secrets.randbits(31),
        attribute_to_datatype={name: KINDS.get(entries["kind"], "String")
                               for name, entries in columns.items()},
        attribute_to_is_categorical={name: "categories" in entries
                                     for name, entries in columns.items()},
        attribute_to_is_candidate_key=dict.fromkeys(columns, False),
        categorical_attribute_domain_file=str(domains),
        numerical_attribute_ranges={name: [float(entries["min"]), float(entries["max"])]
                                    for name, entries in columns.items() if "min" in entries})
    describer.save_dataset_description_to_file(description)
    generator = DataGenerator()
    generator.generate_dataset_in_correlated_attribute_mode(task["n"], description,
                                                            seed=task["seed"])
    job.write(generator.synthetic_dataset, columns)


if __name__ == "__main__":
    main()
