"""Results of rows whose preset has changed since: they need a new run, or say what they are.

Rows that this runner trains have a digest of the configuration in the name of their results. Those
of other benchmarks have the configuration in the results.
"""

import dataclasses

import pytest

from benchmarks import norms
from benchmarks.papers import chosen
from benchmarks.papers.registry import ROWS
from benchmarks.papers.rows import Command, Training
from benchmarks.sweep import jobs
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import presets, train
from dpgen_jax.core.config import to_json

MEASURED = {str(row.work.result()): row for row in ROWS.values() if row.measured()}


def changed(ran, config):
    """Fields that are not as they ran; those that came later ran with their defaults."""
    found = {}
    for field in dataclasses.fields(config):
        now = getattr(config, field.name)
        if field.name not in ran:
            default = field.default if field.default is not dataclasses.MISSING else (
                field.default_factory())
            found |= {field.name: ("the default", now)} if now != default else {}
        elif dataclasses.is_dataclass(now) and isinstance(ran[field.name], dict):
            inner = changed(ran[field.name], now)
            found |= {f"{field.name}.{name}": both for name, both in inner.items()}
        elif now is not None and to_json(now) != ran[field.name]:  # None: found from the budget
            found[field.name] = (ran[field.name], now)
    return found


def of_sweep(name, record):
    """The configurations of a sweep's cells, and today's."""
    cells = {cell.label: jobs.job(SWEEPS[name], cell).args.config for cell in SWEEPS[name].cells}
    for entry in record["rows"]:
        if "config" in entry:
            yield entry["config"], cells[entry["label"]]


def of_norms(argv, record):
    """The configurations of the systems of a study of norms, and today's."""
    args = norms.arguments(list(argv))
    for title, variant in record["variants"].items():
        system, fields = norms.SYSTEMS[title.rpartition(", ")[0]]
        config = presets.get(system, getattr(args, system))[1].config
        wanted = {"steps": args.steps, "critics": args.critics, "warm_steps": args.warm_steps}
        yield variant["settings"]["config"], dataclasses.replace(config, **fields, **{
            key: value for key, value in wanted.items()
            if value is not None and hasattr(config, key)})


def configurations(row):
    """Each configuration in the results of a row, beside that of its command today."""
    record, work = row.results(), row.work
    if isinstance(work, Command) and work.module == "sweep":
        yield from of_sweep(work.argv[0], record)
    elif isinstance(work, Command) and work.module == "norms":
        yield from of_norms(work.argv, record)
    elif isinstance(work, Command) and work.module == "topagg_bound":
        yield record["config"], train.parse("datalens", list(work.argv)).config
    elif isinstance(work, Command) and work.module == "aggregation":
        config = presets.get(*chosen.preset_of(work))[1].config
        yield {**to_json(config), "teachers": record["teachers"], "batch": record["samples"],
               "bins": record["bins"], "projection": record["projections"]}, config
    elif isinstance(work, Training):
        yield record["run"]["config"], work.request()[0]
    elif "run" in record:
        yield record["run"]["config"], presets.get(*chosen.preset_of(work))[1].config


CASES = [(row.name, ran, now) for row in MEASURED.values() for ran, now in configurations(row)]


@pytest.mark.parametrize(("name", "ran", "now"), CASES, ids=[name for name, _, _ in CASES])
def test_the_configuration_of_a_measured_row_is_the_one_that_ran(name, ran, now):
    assert changed(ran, now) == {}


def test_records_of_every_kind_are_compared():
    assert {"gpate:appendix-g:aggregation", "datalens:figure2:mnist-small",
            "gswgan:figureA1:mnist-small", "gswgan:table1:mnist-small",
            "datalens:table5:glyphs-same-steps"} <= {name for name, _, _ in CASES}


def test_what_changed_is_found():
    config = presets.get("datalens", "mnist-eps1")[1].config
    ran = to_json(config)
    assert changed(ran, config) == {}
    del ran["generator"]["latent_distribution"]  # a field that came later, whose default is uniform
    assert changed(ran | {"sigma": 3.0}, config) == {
        "sigma": (3.0, 5000.0), "generator.latent_distribution": ("the default", "gaussian")}
