"""A CSV that declares nothing: what is bought, what that costs, and what no record can do to it."""

import datetime
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from prepared import prepared

from dpgen_jax import train
from dpgen_jax.accountant import composition, events
from dpgen_jax.accountant import ledger as books
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.single_releases import Survey
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import EMPTY, UserError
from dpgen_jax.data.table import frames, parsing, raw, schema, transform
from dpgen_jax.data.table.schema import dialect_of_header
from dpgen_jax.run import planning, purchase, side_releases, undeclared

HEADER = "id,amount,age,born,noon,seen,ok,city,empty,one,code,default"
N = 500


def line(i, rng):
    day = datetime.date(1970, 1, 1) + datetime.timedelta(days=int(rng.integers(0, 9000)))
    cells = [f"u{i}", f"{rng.lognormal(5, 1):.2f}", rng.integers(18, 90), day.strftime("%d/%m/%Y"),
             f"{rng.integers(24):02d}:{rng.integers(60):02d}", f"{day} 10:11:12",
             ("True", "False")[rng.integers(2)],
             "" if rng.random() < 0.3 else ("Bonn", "Köln")[rng.integers(2)], "", 7,
             0 if rng.random() < 0.4 else rng.integers(100, 1000), int(rng.random() < 0.3)]
    return ",".join(map(str, cells))


def rows_of(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return [line(i, rng) for i in range(n)]


ROWS = rows_of()
HOSTILE = ["", ",,,", '"a b",1e308,-1e308,99/99/9999,25:00,x,TRUE,"x,y",\u202e,inf,1e999,2',
           "\x00,nan,NaN,31/02/2000,?,?,?,?,?,?,?,?", "9" * 400 + ",1_0,0x1,1e5,1,1,1,1,1,1,1,yes",
           "u1,-5,17.5,2001-01-01,10:00 AM,01.01.2000 10:00,oui,Bonn,full,8,-3,\u00e9"]


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """Writes a table and trains as far as its choice; returns that."""
    monkeypatch.chdir(tmp_path)

    def inner(*flags, rows=ROWS, header=HEADER, encoding="utf-8", out="run", old=b"", new=b""):
        data = "\n".join([header, *rows, ""]).encode(encoding, "surrogateescape")
        assert not old or data.count(old) == 1
        (tmp_path / "loans.csv").write_bytes(data.replace(old, new) if old else data)
        return prepared(["dpmerf", "--dataset=loans.csv", "--epsilon=10", "--test-fraction=0",
                         f"--out={out}", *flags])
    return inner


@pytest.fixture
def muted(monkeypatch):
    """All noisy counts are exact, and kept: kinds, and the answers of rounds, by purchase."""
    seen = []
    monkeypatch.setattr(single_releases, "_noise", lambda noise, draws,
                        bits: np.zeros(draws, np.int64))
    monkeypatch.setattr(single_releases, "least_name", lambda noise, chance: 1)

    def noted(real):
        def inner(self, *args):
            seen.append(real(self, *args))
            return seen[-1]
        return inner

    for name in ("kind_counts", "value_counts"):
        monkeypatch.setattr(Survey, name, noted(getattr(Survey, name)))
    return seen


def padded(row):
    """A hostile row with as many cells as the header has."""
    cells = row.split(",") if '"' not in row else None
    if cells is None:
        return row
    wanted = HEADER.count(",") + 1
    return ",".join([*cells, *[""] * wanted][:wanted])


@pytest.mark.slow
def test_a_hostile_row_moves_counts_as_declared_and_raises_nothing(bare, muted):
    """Files that differ in one row, through the command: its ledger, reading and training data."""
    one, columns = bare("--label=default", out="before"), HEADER.count(",") + 1
    charged = {side_releases.without_name(event): event
               for event, _ in side_releases.purchases(one.dataset.bought)}
    for i, row in enumerate(HOSTILE):
        changed = bare("--label=default", rows=[*ROWS[:7], padded(row), *ROWS[8:]], out=f"{i}")
        (kinds, *rounds), (kinds2, *rounds2) = muted[:3], muted[-3:]
        assert np.abs(kinds - kinds2).sum(1).max() <= 2
        assert ((kinds - kinds2) ** 2).sum() <= charged["survey kinds"].squared_sensitivity
        values, total = charged["survey values"], 0.0
        assert values.squared_sensitivity == 2 * columns
        for answers, answers2 in zip(rounds, rounds2, strict=True):
            for column in answers.keys() & answers2.keys():
                a, b = answers[column], answers2[column]
                if a.counts.shape == b.counts.shape:  # the same question
                    moved = np.append(a.counts - b.counts, [
                        a.names.get(text, 0) - b.names.get(text, 0)
                        for text in {*a.names, *b.names}])
                    assert np.abs(moved).sum() <= 2
                    total += float((moved ** 2).sum()) / max(a.sigma, b.sigma)**2
        assert 0 < total <= values.squared_sensitivity / values.sigma**2
        data = changed.dataset
        assert data.count == N and np.isfinite(data.x_train).all() and not data.uncovered
        assert (data.x_train[data.y_train == EMPTY] == 0).all()


def test_a_planted_fault_is_caught(bare, muted, monkeypatch):
    """A row that decides how others are read moves more than is declared: of cp1252, say."""
    monkeypatch.setattr(parsing, "csv_header", lambda path, dialect: HEADER.split(","))
    def moved(how):
        monkeypatch.setattr(raw, "dialect_of_header", how)
        muted.clear()
        for out, row in (("a", ROWS[7]), ("b", ROWS[7].replace(",7,", ",\udce9,"))):
            bare("--label=default", rows=[*ROWS[:7], row, *ROWS[8:]], out=f"{out}{how.__name__}")
        one, other = muted[1]["city"].names, muted[4]["city"].names
        return sum(abs(one.get(t, 0) - other.get(t, 0)) for t in one.keys() | other.keys())

    def by_all_rows(path):
        return schema.detected(path.read_bytes())

    assert moved(dialect_of_header) <= 2 < moved(by_all_rows)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_a_stray_byte_moves_no_other_record_and_spends_nothing(bare, tmp_path, encoding):
    """It shifted all bytes behind it: 100 of 500 records were one cell, under a valid stamp."""
    row = ROWS[400].encode(encoding if encoding.endswith("le") else f"{encoding}-le")
    assert bare("--label=default", encoding=encoding, out="before").dataset.count == N
    with pytest.raises(UserError, match=f"loans.csv, line 402: no {encoding}: a byte there is"):
        bare("--label=default", encoding=encoding, old=row, new=row + b"!")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("row", [ROWS[7] + "\n", ROWS[7].replace(",7,", ',"7,'),
                                 ROWS[7].replace(",7,", ",7\n,"), ROWS[7].replace(",7,", ",7\r,"),
                                 '"a\nb"' + "," * HEADER.count(",")])
def test_a_line_end_or_a_quote_moves_no_other_record(bare, muted, tmp_path, row):
    rows = [*ROWS[:7], row, *ROWS[8:]]
    if row == ROWS[7] + "\n":
        assert bare("--label=default", rows=rows).dataset.count == N
        return
    with pytest.raises(UserError, match="loans.csv, line 9: "):
        bare("--label=default", rows=rows)
    assert not muted and not (tmp_path / "run").exists()


def test_no_schema_is_bought_where_a_quote_decides_how_many_records_there_are(bare, tmp_path):
    (tmp_path / "some.yaml").write_text(
        "file: {multiline: true}\ncolumns:\n  age: {kind: integer, min: 0, max: 110}\n")
    with pytest.raises(UserError, match=r"quotes of single records .*nothing was spent"):
        bare("--label=default", "--schema=some.yaml")
    assert not (tmp_path / "run").exists()


def test_every_kind_comes_back(bare, muted):
    """Kinds, nulls, bounds and names, and all cells by the schema that was bought."""
    chosen = bare("--label=default")
    bought = schema.read("run/schema.yaml")
    columns = {column.name: column for column in bought.spec.all_columns}
    forms_of = {name: (column.kind, column.written, column.format, column.nullable)
                for name, column in columns.items()}
    assert forms_of == {
        "id": ("categorical", "plain", "", False), "amount": ("continuous", "plain", "", False),
        "age": ("integer", "plain", "", False), "born": ("integer", "date", "%d/%m/%Y", False),
        "noon": ("continuous", "time", "%H:%M", False),
        "seen": ("continuous", "datetime", "%Y-%m-%d %H:%M:%S", False),
        "ok": ("categorical", "boolean", "", False), "city": ("categorical", "plain", "", True),
        "empty": ("categorical", "plain", "", True), "one": ("integer", "plain", "", False),
        "code": ("integer", "plain", "", False), "default": ("categorical", "plain", "", False)}
    assert columns["city"].categories == ("Bonn", "Köln")
    assert (columns["code"].special, columns["default"].categories) == ((0.0,), ("0", "1"))
    assert 16 <= columns["age"].low <= 18 and 89 <= columns["age"].high <= 128
    data, cells = chosen.dataset, [row.split(",") for row in ROWS]
    codes = transform.decode(data.spec, data.x_train)
    for place, column in enumerate(data.spec.columns):
        texts = transform.texts(column, codes[:, place])
        before = [row[HEADER.split(",").index(column.name)] for row in cells]
        if column.written == "datetime":  # seconds of many years are no float32
            before, texts = ([text[:13] for text in side] for side in (before, texts))
        same = [a == b or (transform.number(a) is not None and np.isclose(float(a), float(b), 2e-3))
                for a, b in zip(before, texts, strict=True)]
        assert np.mean(same) > 0.94, column.name
    assert np.mean([str(y) == row[-1] for y, row in zip(data.y_train, cells, strict=True)]) == 1


def test_the_purchase_costs_its_share_and_is_charged_first(bare):
    chosen = bare("--label=default", "--delta=1e-6")
    assert chosen.remarks[0].startswith(
        "estimating the schema of 12 undeclared columns uses 15 % of the budget (epsilon ")
    account = books.account(books.read("run/ledger.jsonl"))
    assert not account.meaning and len(account.spent()) == 3
    assert side_releases.purchases(chosen.dataset.bought) == account.spent()
    assert {row["records"] for row in chosen.dataset.bought} == {N}
    alone, whole = account.epsilon(), composition.epsilon_of(
        (*account.spent(), (_training(8.5), 1)), 1e-6)
    assert f"epsilon {at_most(alone, 3)} at delta" in chosen.remarks[0] and 3 < alone < 6
    assert 9.8 < whole <= 10 and "see run/schema.yaml" in chosen.remarks[0]


def _training(epsilon):
    """A Gaussian release that spends this epsilon at what names leave of delta."""
    low, high = 0.01, 100.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        event = events.GaussianEvent(middle, 1)
        above = composition.epsilon_of(((event, 1),), 0.75e-6) > epsilon
        low, high = (middle, high) if above else (low, middle)
    return events.GaussianEvent(high, 1)


def test_a_rehearsal_names_price_questions_and_noise(bare, tmp_path, capsys, monkeypatch):
    words = ["--dataset=loans.csv", "--label=default", "--epsilon=10"]
    monkeypatch.setattr(purchase, "buy_schema", lambda *args: pytest.fail("bought"))
    with pytest.raises(pytest.fail.Exception):
        bare("--label=default")
    train.command(["dpmerf", *words, "--out=rehearsed", "--dry-run"])
    out = capsys.readouterr().out
    survey = purchase.priced_survey(12, N, 10.0, 1e-5, 0.15)
    assert ("12 columns are not declared; estimating the schema would use 15 % of the budget "
            "(epsilon ") in out
    assert "counts of 500 rows each" in out and f"deviation {survey.kinds.sigma:.0f};" in out
    assert f"a category is found if about {survey.threshold:,} rows have it" in out
    assert re.search(r"if all columns were numbers, and the label of two classes: 1 steps, "
                     r"sigma [\d.]+, and [\d.]+ MB of memory", out)
    assert out.endswith("nothing was written or spent; to train, leave out --dry-run\n")
    train.command(["dpmerf", *words, "--accept-uncovered", "--dry-run"])
    assert "would be READ FROM THE RECORDS" in capsys.readouterr().out
    assert not (tmp_path / "rehearsed").exists() and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("flags", "message"), [
    (["--label=defaulted"], r"--label defaulted: .*no such column, did you mean 'default'.*amount"),
    (["--label=default", "--epsilon=0.1"], "rows share can be estimated.*there are.*Declare"),
    (["--label=default", "--unit=id", "--rows-per-unit=2"], "single rows.*--unit id --out"),
    (["--label=default", "--schema-share=1"], "it is a part of epsilon"),
    (["--label=default", "--delta=0.1"], "does not protect 500 records")])
def test_what_cannot_be_bought_is_said_before_anything_is_spent(bare, tmp_path, flags, message):
    with pytest.raises(UserError, match=message):
        bare(*flags)
    assert not (tmp_path / "run").exists()


def test_few_rows_and_very_many_columns_are_to_be_declared(bare, tmp_path):
    wide = ",".join(f"c{i}" for i in range(11_000))
    for rows, header in ((ROWS[:20], HEADER), ([",".join("1" * 11_000)] * 60, wide)):
        with pytest.raises(UserError, match="columns are not declared.*nothing was spent"):
            bare(rows=rows, header=header)
    assert not (tmp_path / "run").exists()


def test_a_schema_of_some_columns_buys_the_rest(bare, tmp_path):
    (tmp_path / "some.yaml").write_text(
        "label: default\ncolumns:\n  default: {kind: categorical, categories: ['0', '1']}\n"
        "  age: {kind: integer, min: 0, max: 120}\n  id: {kind: identifier, pattern: 'u####'}\n")
    chosen = bare("--schema=some.yaml")
    spec = chosen.dataset.spec
    assert (spec.label.categories, spec.identifiers[0].name) == (("0", "1"), "id")
    assert next(c for c in spec.columns if c.name == "age").high == 120
    assert "schema of 9 undeclared columns" in chosen.remarks[0] and chosen.dataset.bought[0][
        "squared_sensitivity"] == 18
    full = bare("--schema=run/schema.yaml", out="full")
    assert full.dataset.bought == chosen.dataset.bought
    assert not full.remarks
    with pytest.raises(UserError, match="--label age: .* has the label default"):
        bare("--schema=run/schema.yaml", "--label=age", out="other")


def test_a_label_of_many_numbers_is_a_target_and_none_is_said(bare, muted):
    chosen = bare("--label=amount")
    assert "amount is a number with many values" in chosen.remarks[0]
    assert not chosen.dataset.spec.labelled and chosen.dataset.spec.targets == ("amount",)
    assert "there is no label, since --label names none" in bare(out="b").remarks[0]


def test_what_is_accepted_is_read_and_stamped(bare):
    rows = [f"u,{row.split(',', 1)[1]}".replace(",,7,", ",x,7,") for row in ROWS]
    words = ["--label=default", "--accept-uncovered"]
    with pytest.raises(UserError, match="the kind of empty is still `\\?`"):
        bare(*words, rows=[row.replace(",x,7,", ",,7,") for row in rows])
    chosen = bare(*words, rows=rows)
    assert chosen.dataset.uncovered and not chosen.dataset.bought
    assert "READ FROM THE RECORDS" in chosen.remarks[0]
    assert not Path("run/ledger.jsonl").exists()
    assert Path("run/schema.yaml").stat().st_mode & 0o77 == 0


def test_a_label_of_one_class_is_a_column_as_any_other(bare, tmp_path):
    rows = [f"{row[:-1]}{int(i == 5)}" for i, row in enumerate(ROWS)]
    chosen = bare("--label=default", rows=rows)
    spec = chosen.dataset.spec
    assert "fewer than 2 classes of the label default" in chosen.remarks[0]
    assert not spec.labelled and not spec.targets
    assert [column.kind for column in spec.columns if column.name == "default"] == ["integer"]
    text = re.sub(r"  default:.*?(?=\n\w)", (
        "  default: {kind: categorical, categories: ['0', '1'], odd: 'null'}"), (
        tmp_path / "run/schema.yaml").read_text().replace("columns:", "label: default\ncolumns:"),
        flags=re.DOTALL)
    (tmp_path / "mended.yaml").write_text(text)
    data = bare("--schema=mended.yaml", rows=rows, out="other").dataset
    assert data.spec.class_names == ("0", "1") and data.bought == chosen.dataset.bought


def test_a_label_of_one_text_keeps_it(bare):
    rows = [f"{row[:-1]}only" for row in ROWS]
    chosen = bare("--label=default", rows=rows)
    assert "stand out from the noise (only is)" in chosen.remarks[0]
    assert next(column.categories for column in chosen.dataset.spec.columns
                if column.name == "default") == ("only",)


SOME = "columns:\n  age: {kind: integer, min: 0, max: 120}\n"


@pytest.mark.parametrize(("method", "flags", "message"), [
    ("gswgan", ["--preset=mnist-eps1"], "networks are for images.*nothing was spent"),
    ("gpate", ["--teachers=5000"], "400 records cannot be dealt to 5,000.*nothing was spent"),
    ("dpmerf", ["--clients=5"], "need --federated.*nothing was spent"),
    ("dpmerf", ["--class-epsilon=11"], "nothing is left to train with.*nothing was spent"),
    ("dpmerf", ["--public-dataset=glyphs", "--evaluate-every=1"], "works for images.*nothing was"),
    ("dpmerf", ["--test-fraction=0.0001"], "of 500 records is 0"),
    ("dpmerf", ["--test-csv=loans.csv", "--test-fraction=0.1"], "already has a held-out part"),
    ("dpmerf", ["--test-csv=nowhere.csv"], "nowhere.csv not found"),
    ("dpmerf", ["--test-csv=short.csv"], "short.csv: column 'id' is missing"),
    ("dpmerf", ["--schema=some.yaml"], "some.yaml: column age: unknown key 'mim'"),
    ("dpmerf", ["--schema=some.yaml", SOME.replace("max: 120", "max: -1")], "min 0 is above max"),
    ("dpmerf", ["--schema=some.yaml", SOME.replace("age", "city")], "city: 'Bonn' is not a"),
    ("dpmerf", ["--schema=some.yaml", f"{SOME}bought:\n  - {{entry: [age.bounds], kind: "
                "epsilon-delta, count: 1, epsilon: 9.99, delta: 0.0, mechanism: paid}\n"],
     "nothing is left to train with.*nothing was spent"),
    ("dpmerf", ["--schema=some.yaml", f"targets: [old]\n{SOME}"], "target 'old' is not a column")])
def test_what_a_run_refuses_is_refused_before_a_purchase(tmp_path, monkeypatch, method, flags,
                                                         message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(purchase, "buy_schema", lambda *args: pytest.fail("bought"))
    (tmp_path / "loans.csv").write_text("\n".join([HEADER, *ROWS, ""]))
    (tmp_path / "short.csv").write_text("age\n3\n")
    flags, text = [f for f in flags if f.startswith("--")], flags[-1]
    (tmp_path / "some.yaml").write_text(
        SOME.replace("min", "mim") if text.startswith("--") else text)
    with pytest.raises(UserError, match=message):
        train.command([method, "--dataset=loans.csv", "--label=default", "--epsilon=10",
                               "--delta=1e-4", "--out=run", *flags])
    assert not (tmp_path / "run").exists()


def test_a_constraint_that_does_not_fit_what_is_bought_loses_nothing(bare, tmp_path, monkeypatch):
    words = ["--dataset=loans.csv", "--epsilon=10", "--delta=1e-4", "--out=run"]
    (tmp_path / "some.yaml").write_text(f"{SOME}constraints: [city <= age]\n")
    (tmp_path / "loans.csv").write_text("\n".join([HEADER, *ROWS, ""]))
    with pytest.raises(UserError, match="constraint 'city <= age'.*kept in run and is not paid for "
                                        "again: resume with .*--resume run, with run/schema.yaml"):
        train.command(["dpmerf", *words, "--schema=some.yaml"])
    monkeypatch.setattr(purchase, "buy_schema", lambda *args: pytest.fail("bought again"))
    place = tmp_path / "run/schema.yaml"
    place.write_text(place.read_text().replace("city <= age", "age <= amount"))
    chosen = prepared(["dpmerf", *words, "--schema=some.yaml", "--resume"])
    assert chosen.dataset.spec.constraints == ("age <= amount",) and len(chosen.dataset.bought) == 3
    assert len(books.read(tmp_path / "run/ledger.jsonl")) == 2


def test_the_records_that_a_purchase_covered_are_known(bare, tmp_path):
    """Those held out, too; of another file their number alone."""
    data = bare("--test-fraction=0.2").dataset
    assert planning.bought_from(data) == {"records": N, "held_out": N // 5}
    known = ["--schema=run/schema.yaml", "--test-fraction=0.1"]
    assert planning.bought_from(bare(*known, out="b").dataset) == {
        "records": N, "held_out": N // 10}
    assert planning.bought_from(bare(known[0], "--test-fraction=0", out="c").dataset) == {
        "records": N, "held_out": 0}
    assert planning.bought_from(bare(*known, out="d", rows=ROWS[:400]).dataset) == {"records": N}
    frame = pd.read_csv(tmp_path / "loans.csv", dtype=str, keep_default_na=False)
    whole = pd.concat([frame, frame[:N - len(frame)]])
    assert [planning.bought_from(frames.from_frame(rows, schema.read("run/schema.yaml")))
            for rows in (frame, whole)] == [{"records": N}, {"records": N, "held_out": 0}]
    place = tmp_path / "run/schema.yaml"
    earlier = re.sub(r" records: \d+,", "", place.read_text())
    place.write_text(earlier)
    before = bare(*known, out="e").dataset
    assert planning.bought_from(before) == {} and len(before.bought) == 3
    assert any("on the same records: kinds of" in note for note in before.notes)
    place.write_text(earlier.replace("count: 1", "records: -1, count: 1"))
    with pytest.raises(UserError, match="block `bought` was changed: `records` is not a number"):
        planning.bought_from(bare(*known, out="f").dataset)


def test_texts_that_are_all_different_say_nothing(bare):
    rows = [f"{i}-{row}" for i, row in enumerate(ROWS)]
    line, = bare("--label=default", rows=rows).remarks
    assert "no value of id is frequent enough" in line
    assert re.search("no value of empty .* synthetic cells will be null or `other`", line)
    assert "kept as special values: code (0)" in line


def stopped(*_):
    raise KeyboardInterrupt


def test_draws_that_were_lost_stay_charged(bare, tmp_path, monkeypatch):
    """Stopped between charge and answer: a new draw is charged anew, and then never again."""
    words = ["--label=default"]
    with monkeypatch.context() as lost:
        lost.setattr(undeclared, "_kept", stopped)
        with pytest.raises(KeyboardInterrupt):
            bare(*words)
    stated = read_json(tmp_path / "run/config.json")["request"]
    assert (stated["method"], stated["epsilon"]) == ("dpmerf", 10.0)
    with pytest.raises(UserError, match="already contains a run; resume it with .*--resume"):
        bare(*words)
    with pytest.raises(UserError, match="was started with budget"):
        bare(*words, "--resume", "--epsilon=4")
    words += ["--resume", f"--delta={read_json(tmp_path / 'run/config.json')['budget']['delta']}"]
    bought = bare(*words).dataset.bought
    assert [row["count"] for row in bought] == [2, 2, 2]
    monkeypatch.setattr(purchase, "buy_schema", lambda *args: pytest.fail("bought again"))
    assert bare(*words).dataset.bought == bought
    assert len(books.read(tmp_path / "run/ledger.jsonl")) == 4
