"""The comparison of methods on tables: its data, its measures, going on, and what the page says."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks.tables import __main__ as command
from benchmarks.tables import cells, data, methods, page
from benchmarks.tables.methods import PEERS, Failed, Spent, timed
from dpgen_jax.core.errors import UserError
from dpgen_jax.data.table import transform

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def loans():
    return data._of_a_law("loans", 500)


@pytest.mark.parametrize("law", ["loans", "rare", "dense", "scale"])
def test_a_law_is_repeatable_and_keeps_to_its_schema(law):
    one, two = (data._of_a_law(law, 300) for _ in range(2))
    assert (one.x_train == two.x_train).all() and (one.y_test == two.y_test).all()
    assert not set(map(bytes, one.x_train)) & set(map(bytes, one.x_test))
    assert not one.private_notes  # nothing was clipped


def test_delta_is_one_that_protects(loans):
    assert cells.delta(loans) == cells.DELTA
    many = dataclasses.replace(loans, y_train=np.zeros(1_000_000, np.int32))
    assert cells.delta(many) == 1e-7


def test_rows_are_read_back_as_they_were_written(loans, tmp_path):
    data.write(loans, tmp_path)
    (tmp_path / "train.csv").rename(tmp_path / "synthetic.csv")
    x, y = data.read(tmp_path / "synthetic.csv", loans.spec)
    assert (y == loans.y_train).all()
    np.testing.assert_allclose(transform.decode(loans.spec, x),
                               transform.decode(loans.spec, loans.x_train), rtol=2e-5)


def test_the_measures_tell_good_rows_from_bad(loans):
    train, test = (loans.x_train, loans.y_train), (loans.x_test, loans.y_test)
    good = cells.measured(train, test, loans.spec, 0)
    rng = np.random.default_rng(0)
    bad = cells.measured((rng.permuted(train[0], axis=0), train[1]), test, loans.spec, 0)
    one_class = cells.measured((train[0], np.zeros_like(train[1])), test, loans.spec, 0)
    for name in cells.CLASSIFIERS:
        assert good[name] > 0.65 and good[name] > bad[name] + 0.1 and one_class[name] == 0.5
    assert good["pairs"] < bad["pairs"] and good["queries"] < bad["queries"]
    assert good["f1"] > bad["f1"] + 0.05 > one_class["f1"]


def test_classifiers_learn_from_all_rows_of_a_rare_class():
    y = np.zeros(30_000, np.int32)
    y[::1000] = 1
    x = np.arange(len(y), dtype=np.float32)[:, None]
    assert cells.with_rare_class(y)
    chosen, classes = cells.learned((x, y), 0)
    assert classes.sum() == y.sum() and len(classes) == cells.MOST_ROWS
    assert (chosen[classes == 1][:, 0] % 1000 == 0).all()
    y[::50] = 1  # two in a hundred: a draw of all
    assert not cells.with_rare_class(y)
    assert 150 < cells.learned((x, y), 0)[1].sum() < 250


def test_validation_rows_are_training_rows(monkeypatch, loans):
    monkeypatch.setitem(data.SOURCES, "small", data.Source("a law", lambda: loans))
    part = data.load("small", "validation")
    assert len(part.y_train) + len(part.y_test) == len(loans.y_train)
    rows = {bytes(row) for row in loans.x_test}
    assert not rows & {bytes(row) for row in (*part.x_test, *part.x_train)}


@pytest.fixture
def small(monkeypatch, tmp_path, loans):
    """One cell of the benchmark, whose runs give what the test says."""
    monkeypatch.setitem(data.SOURCES, "small", data.Source("a law", lambda: loans))
    monkeypatch.setattr(data, "load", lambda table, part: loans)
    made = []
    monkeypatch.setattr(cells, "run", lambda cell, index, places: made[index])
    cell = cells.Cell("small", methods.find("gpate --steps=3"), 1.0)
    places = cells.Places(tmp_path, tmp_path, 60)
    return made, cell, places


def test_a_cell_goes_on_where_it_stopped_and_begins_anew_when_changed(small):
    made, cell, places = small
    made += [{"scores": {"lr": 0.5 + i / 10}, "cpu_seconds": 1.0} for i in range(3)]
    assert command.step(cell, 0, places, False) and command.step(cell, 0, places, False) is None
    assert "run 2" in command.step(cell, 1, places, False)
    record = json.loads((places.results / "small-gpate-steps-3-eps1.json").read_text())
    assert record["results"]["scores"]["lr"]["values"] == [0.5, 0.6]
    changed = cells.Cell("small", methods.Method("gpate --steps=3", flags=lambda _: []), 1.0)
    assert cells.known(changed, places)["runs"] == []


def test_a_failure_is_written_and_tried_again_on_request(small):
    made, cell, places = small
    made.append({"error": "no room"})
    assert "no room" in command.step(cell, 0, places, False)
    assert command.step(cell, 1, places, False) is None
    made[0] = {"scores": {"lr": 0.7}}
    assert "0.700" in command.step(cell, 0, places, True)
    assert [run.get("error") for run in cells.known(cell, places)["runs"]] == [None]


def test_what_is_compared_has_a_name_and_a_program():
    for peer in PEERS.values():
        assert (cells.PROGRAMS / f"{peer.program}.py").is_file() and peer.relation and peer.reads
    assert methods.find("marginals --model=tree").slug == "marginals-model-tree"
    with pytest.raises(UserError, match="did you mean 'gpate'"):
        methods.find("gpat")


def test_a_process_is_timed_and_a_failure_says_its_last_line(tmp_path):
    spent = timed(["sh", "-c", "exit 0"], tmp_path / "log", 60)
    assert spent.plus(Spent(1.0, 2.0, 3)).cpu_seconds >= 2
    with pytest.raises(Failed, match="^it is full$"):
        timed(["sh", "-c", "echo it is full >&2; exit 3"], tmp_path / "log", 60)
    with pytest.raises(Failed, match="^more than 1 CPU seconds$"):
        timed(["sh", "-c", "while :; do :; done"], tmp_path / "log", 1)


def test_the_page_says_where_ours_is_behind(monkeypatch):
    def cell(method, lr, pairs):
        score = {name: {"mean": np.mean(values), "values": values} for name, values in zip(
            page.SHOWN, (lr, [0.5], [0.5], pairs), strict=True)}
        return {"table": "t", "rows": 9, "method": method, "epsilon": 1.0, "scores": score,
                "runs": [], "stem": method, "relation": "r"}

    shown = (cell("marginals", [0.8, 0.9], [0.1, 0.1]), cell("other", [0.7, 0.8], [0.05, 0.06]))
    monkeypatch.setattr(page, "cells", lambda: shown)
    assert page.behind(1.0).splitlines()[-1] == "| t | pairs | 0.100 | 0.055 | other | r | yes |"
    assert page.behind(1.0).count("\n| t |") == 1
    queries = [{"mean": mean, "values": [mean] * 2} for mean in (0.02, 0.01)]
    with_queries = [one | {"scores": one["scores"] | {"queries": score}}
                    for one, score in zip(shown, queries, strict=True)]
    monkeypatch.setattr(page, "cells", lambda: (*with_queries, cell("third", [0.1], [0.2])))
    assert page.behind(1.0).endswith("| t | queries | 0.020 | 0.010 | other | r | yes |")
    monkeypatch.setattr(page, "cells", lambda: (shown[0], cell("other", [0.9], [0.2])))
    assert page.behind(1.0).endswith("| t | LR | 0.850 | 0.900 | other | r | single runs |")
    monkeypatch.setattr(page, "cells", lambda: (shown[0], cell("other", [0.8], [0.2])))
    assert page.behind(1.0).endswith("There is none.")
    monkeypatch.setattr(page, "cells", lambda: (shown[1],))
    assert "not measured" in page.behind(1.0)
