"""Results of rows whose preset has changed since: they need a new run, or say what they are.

Rows that this runner trains have a digest of the configuration in the name of their results. Those
of other benchmarks have the configuration in the results.
"""

import json

import pytest

from benchmarks import claimed, common
from benchmarks.papers import __main__ as command
from benchmarks.papers import page
from benchmarks.papers.registry import ROWS
from dpgen_jax import presets
from dpgen_jax.core.config import to_json

RESULTS = common.RESULTS

MEASURED = {str(row.work.result()): row for row in ROWS.values() if row.measured()}
CASES = [(row.name, *both) for row in MEASURED.values() for both in page.configurations(row)]


@pytest.mark.parametrize(("name", "earlier", "now"), CASES, ids=[name for name, _, _ in CASES])
def test_the_configuration_of_a_measured_row_is_the_one_that_ran(name, earlier, now):
    assert page.changed(earlier, now) == {}


def test_records_of_every_kind_are_compared():
    assert {"gpate:appendix-g:aggregation", "datalens:figure2:mnist-small",
            "gswgan:figureA1:mnist-small", "gswgan:table1:mnist-small",
            "datalens:table5:glyphs-same-steps"} <= {name for name, _, _ in CASES}


def test_what_changed_is_found():
    config = presets.get("datalens", "mnist-eps1")[1].config
    earlier = to_json(config)
    assert page.changed(earlier, config) == {}
    del earlier["generator"]["latent_distribution"]  # a later field, whose default is uniform
    assert page.changed(earlier | {"sigma": 3.0}, config) == {
        "sigma": (3.0, 5000.0), "generator.latent_distribution": ("the default", "gaussian")}


def test_the_list_and_the_page_say_that_a_row_was_measured_before_its_preset_changed(
        monkeypatch, tmp_path):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    row = ROWS["gswgan:table1:mnist-long"]
    config = presets.get("gswgan", "mnist-eps10-long")[1].config
    same = to_json(config)

    def written(earlier):
        row.work.result().write_text(json.dumps({"results": {
            "run": {"config": earlier}, "privacy": {"epsilon": 10.0, "steps": 800},
            "training_seconds": 60.0}}))
        return command.state(row), page.stale_sentence(), page.done(row)

    state, sentence, done = written(same)
    assert state.startswith("measured without") and "changed" not in done
    assert sentence == "All results that record a configuration have that of today's preset."
    state, sentence, done = written(same | {"critics": config.critics - 1})
    assert state == "measured before its preset changed" and state in done
    assert f"{state}, in the fields named: `{row.name}` (critics)." in sentence
    epochs = ROWS["gpate:appendix-g:epoch"].work.result()
    epochs.write_text((RESULTS / epochs.name).read_text())  # times, and no configuration
    assert page.stale_sentence().endswith("These files record none: `epochs.json`.")


def test_claimed_epsilons_are_what_is_recorded():
    """By either conversion, for every paper: they are computed, not measured."""
    recorded = json.loads((RESULTS / "claimed.json").read_text())["results"]["conversions"]
    for row, known in zip(claimed.conversions(), recorded, strict=True):
        assert {**known, "claimed": 0, "claimed_classic": 0} == {**row, "claimed": 0,
                                                               "claimed_classic": 0}
        assert row["claimed"] == pytest.approx(known["claimed"], rel=1e-6)
        assert row["claimed_classic"] == pytest.approx(known["claimed_classic"], rel=1e-6)
        assert row["claimed"] < row["claimed_classic"]
