"""dpmm (SAS): its pipelines with their own bins, PrivTree at a tenth of the budget.

Told are the bounds and categories of the schema. `epsilon` of a pipeline is that of the model alone
and `proc_epsilon` that of the bins, so that the two are given parts of the budget.
"""

import job
from dpmm import pipelines

BINS_SHARE = 0.1


def main():
    task, columns, frame = job.read()
    domain = {}
    for name, entries in columns.items():
        if "categories" in entries:
            frame[name] = frame[name].astype("category")
            domain[name] = {"categories": list(entries["categories"])}
        else:
            domain[name] = {"lower": float(entries["min"]), "upper": float(entries["max"])}
    pipeline = getattr(pipelines, task["pipeline"])(
        epsilon=(1 - BINS_SHARE) * task["epsilon"], delta=task["delta"], n_jobs=1,
        proc_epsilon=BINS_SHARE * task["epsilon"], max_model_size=80)
    pipeline.fit(frame, domain)
    job.write(pipeline.generate(n_records=task["n"]), columns)


if __name__ == "__main__":
    main()
