"""Conditions and blocks: what is drawn is what filtering gives, in bounded memory and tries."""

import dataclasses
import itertools

import numpy as np
import pytest
from people_table import SPEC, THREE

from dpgen_jax.core.types import Column, Identifier, ImageSpec, UserError
from dpgen_jax.data.table.constraints import Finished
from dpgen_jax.release import files, sampling
from dpgen_jax.release.sampling import CHUNK, Sampler, Source

NAN = float("nan")
# All ages in tens, both sexes, three values of pay (one that is written as 10) and null, all marks.
ROWS = np.array(list(itertools.product(range(0, 101, 10), (0, 1), (-10, 9.9999999, 30, NAN),
                                       (0, 1, 2))), float)
AGE, SEX, PAY, MARK = ROWS.T
ODD = dataclasses.replace(SPEC, columns=(
    Column("a=b", "categorical", categories=("x|y", "x", ">5", "null")), *SPEC.columns))


@pytest.mark.parametrize(("where", "expected"), [
    ("age>=60", AGE >= 60), ("age = 60", AGE == 60), ("age=10|90", np.isin(AGE, (10, 90))),
    (["age>20", "age<=60"], (AGE > 20) & (AGE < 61)), ("age!=50", AGE != 50),
    ("sex=f and age>=60", (SEX == 0) & (AGE >= 60)),
    ("age > 20 AND age<=60 and mark=low|mid", (AGE > 20) & (AGE < 61) & (MARK < 2)),
    (["sex=m", "age>20 and age<=60"], (SEX == 1) & (AGE > 20) & (AGE < 61)),
    ("age=20..60", (AGE >= 20) & (AGE <= 60)),
    ("sex=f", SEX == 0), ("sex!=f", SEX == 1), ("sex=f|m", SEX >= 0), ("mark>=mid", MARK >= 1),
    ("mark=low..mid", MARK <= 1), ("pay=null", np.isnan(PAY)), ("pay!=null", ~np.isnan(PAY)),
    ("pay=null|30", np.isnan(PAY) | (PAY == 30)), ("pay!=30", PAY < 30),
    # It is 9.9999999 and written as 10, so it is neither.
    ("pay<10", PAY == -10), ("pay>=10", PAY == 30),
    ({"age": 60.0, "sex": "m"}, (AGE == 60) & (SEX == 1)), ({"age": ">=60"}, AGE >= 60),
    ({"mark": ["low", "high"], "pay": None}, (MARK != 1) & np.isnan(PAY)),
    ({"pay": [None, 30]}, np.isnan(PAY) | (PAY == 30))])
def test_rows_that_meet_conditions(where, expected):
    np.testing.assert_array_equal(sampling.parse_conditions(where, SPEC).met(ROWS), expected)


@pytest.mark.parametrize(("where", "codes"), [
    ("a=b=x|y", [0]), ("a=b=x|>5", [1, 2]), ("a=b=>5", [2]), ("a=b=null", [3]),
    ({"a=b": ">5"}, [2])])
def test_names_and_categories_that_hold_operators(where, codes):
    rows = np.zeros((4, 5))
    rows[:, 0] = range(4)
    assert np.flatnonzero(sampling.parse_conditions(where, ODD).met(rows)).tolist() == codes


@pytest.mark.parametrize(("where", "codes"), [
    ("land=Trinidad and Tobago", [0, 2]), ("land=Trinidad and Tobago and age>=60", [0]),
    ("land=Trinidad and Tobago|Mali and age<60", [2, 3]), ("age<60 and land!=Mali", [2])])
def test_and_within_a_category_belongs_to_it(where, codes):
    land = Column("land", "categorical", categories=("Trinidad and Tobago", "Mali"))
    spec = dataclasses.replace(SPEC, columns=(land, *SPEC.columns))
    rows = np.zeros((4, 5))
    rows[:, 0], rows[:, 1] = (0, 1, 0, 1), (70, 50, 10, 10)
    rows[1, 1] = 60
    assert np.flatnonzero(sampling.parse_conditions(where, spec).met(rows)).tolist() == codes


@pytest.mark.parametrize(("where", "match"), [
    ("sex=f and agee>=60", "no column is named 'agee', did you mean 'age'"),
    ("sex=f and", "'f and' is not a value of column sex"),
    ("age>=60 and age<50", "no record can meet age>=60 and age<50: column age lies from")])
def test_what_is_wrong_after_and_is_named(where, match):
    with pytest.raises(UserError, match=match):
        sampling.parse_conditions(where, SPEC)


@pytest.mark.parametrize("where", ["flag=true", "flag=TRUE", {"flag": True}, {"flag": "True"}])
def test_a_boolean_is_named_in_small_or_capital_letters(where):
    flag = Column("flag", "categorical", categories=("FALSE", "TRUE"), written="boolean")
    spec = dataclasses.replace(SPEC, columns=(flag, *SPEC.columns))
    rows = np.zeros((2, 5))
    rows[:, 0] = 0, 1
    assert sampling.parse_conditions(where, spec).met(rows).tolist() == [False, True]


def test_too_many_rows_for_a_pattern_are_refused_before_any_is_drawn(tmp_path):
    spec = dataclasses.replace(SPEC, identifiers=(Identifier("case", "P-#", 0),))
    files.opener(tmp_path / "a.csv", spec, 10)
    files.opener(tmp_path / "a.npz", spec, 11)  # which holds no identifiers
    with pytest.raises(UserError, match="'P-#' has 10 identifiers, and 11 are needed"):
        files.opener(tmp_path / "a.csv", spec, 11)


@pytest.mark.parametrize("where", ["case=P-1", {"case": "P-1"}])
def test_a_condition_on_an_identifier_says_what_it_is(where):
    spec = dataclasses.replace(SPEC, identifiers=(Identifier("case", "P-#", 0),))
    with pytest.raises(UserError, match="column case is never read: every record has a new id"):
        sampling.parse_conditions(where, spec)


@pytest.mark.parametrize(("where", "message"), [
    ("agee>=60", "no column is named 'agee', did you mean 'age'.*known: age"),
    ("age", "'age' has no comparison; write COLUMN=VALUE"), ("age=", "'' is not a value of"),
    ("age=old", "'old' is not a value of column age, which is integer"), ("age=1.5", "'1.5' is no"),
    ("age>=101", "no record can meet age>=101: column age lies from 0 to 100"),
    (["age>60", "age<61"], "no record can meet age>60 and age<61"),
    (["pay>1", "pay=null"], "no record can meet pay>1 and pay=null"),
    (["mark>mid", "mark!=high"], "mark is one of low, mid, high"),
    ("sex=x", "'x' is not a value of column sex.*known: f, m"),
    ("sex>=f", "column sex have no order"),
    ("sex=null", "sex is not nullable"), ("ill=maybe", "'maybe' is not a value of column ill"),
    (["ill=no", "ill=yes"], "no record can meet ill=no and ill=yes"), (3, "where is a int"),
    ({"age": []}, "no record can meet age=")])
def test_conditions_that_no_record_meets_are_one_line(where, message):
    with pytest.raises(UserError, match=message) as caught:
        sampling.parse_conditions(where, SPEC)
    assert "\n" not in str(caught.value)


def draw(start, labels):
    """Records whose first column, 0..99, depends on the draw, and whose second is the label."""
    return np.column_stack([np.random.default_rng(start).integers(0, 100, len(labels)), labels])


def rare(start, labels):
    """As `draw`, with ages below 50 for the last class in nine of ten records."""
    rows = draw(start, labels)
    rows[:, 0] //= 1 + ((rows[:, 0] % 10 > 0) & (labels == 2))
    return rows


def codes(rows):
    return np.column_stack([rows[:, 0], np.zeros((len(rows), 3))]).astype(float)


def sampler(where, n, labels=None, prior=None, draw=draw, **options):
    labels = None if labels is None else np.array(labels)
    source = Source(draw, lambda x, y: Finished(codes(x)), prior)
    return Sampler(source, sampling.parse_conditions(where, THREE), n, labels, 7, **options)


def together(blocks):
    x, y = zip(*blocks, strict=True)
    assert max(map(len, y)) <= CHUNK
    return np.concatenate(x), np.concatenate(y)


def test_rejection_gives_what_filtering_gives():
    prior = np.array([0.5, 0.2, 0.3])
    found = sampler("age<10", 300, prior=prior)
    x, y = together(found)
    assert len(y) == 300 == found.found and found.tries % CHUNK == 0
    labels = np.random.default_rng([7, 1]).choice(3, found.tries, p=prior)
    every = [draw(start, labels[start:start + CHUNK]) for start in range(0, found.tries, CHUNK)]
    every = np.concatenate(every)
    np.testing.assert_array_equal(x[:, 0], every[every[:, 0] < 10][:300, 0])
    np.testing.assert_array_equal(y, every[every[:, 0] < 10][:300, 1])
    met = (every[:, 0] < 10).sum()
    assert found.report() == [f"age<10: by rejection, {met} of {found.tries:,} drawn records met "
                              f"all conditions ({100 * met / found.tries:.3g} %)"]


def test_a_condition_on_the_label_is_exact_and_rejects_nothing():
    found = sampler("kind=a|c", 9000, prior=np.array([0.3, 0.4, 0.3]))
    _, y = together(found)
    assert (found.tries, found.report()) == (9000, ["kind=a|c: exact, by the model"])
    assert set(y) == {0, 2} and abs((y == 0).mean() - 0.5) < 5 * 0.5 / 9000**0.5
    assert together(sampler("kind!=b", 5))[1].tolist() == [0, 2, 0, 2, 0]
    images = sampling.parse_conditions("label=cat", ImageSpec(4, 4, 1, 2, ("dog", "cat")))
    assert images.classes().tolist() == [False, True]


def test_labels_keep_equal_shares_where_their_records_are_rejected_unequally():
    _, y = together(sampler("age>=50", 1000, [2, 0, 2], draw=rare))
    assert np.bincount(y).tolist() == [333, 0, 667]
    with pytest.raises(UserError, match="label 1 does not meet kind=a"):
        sampler("kind=a", 5, [0, 1])


@pytest.mark.parametrize(("where", "n", "most", "tries", "found"), [
    ("age>=100", 10, 3000, 3000, "0"), ("age>=99", 10_000, 20_000, 20_000, r"\d\d\d")])
def test_a_search_ends_and_says_how_many_were_found(where, n, most, tries, found):
    bounded = sampler(where, n, max_tries=most)
    with pytest.raises(UserError, match=rf"^{found} of {n:,} records that meet {where} were found "
                       rf"in {tries:,} tries; draw fewer, widen"):
        list(bounded)
    assert bounded.tries == tries


def test_a_hopeless_search_ends_before_its_bound(monkeypatch):
    monkeypatch.setattr(sampling, "LEAST_TRIES", 5000)
    hopeless = sampler("age=99", 10**6, max_tries=10**7)
    with pytest.raises(UserError, match="in 5,000 tries"):
        list(hopeless)


def test_a_trillion_records_begin_like_a_thousand():
    x, y = zip(*itertools.islice(sampler(None, 10**12), 2), strict=True)
    alike = together(sampler(None, 1000))
    np.testing.assert_array_equal(np.concatenate(x), alike[0])
    np.testing.assert_array_equal(np.concatenate(y), alike[1])
    _, y = next(iter(sampler("age>=0", 10**12, [1, 2])))
    assert np.bincount(y).tolist() == [0, 250, 250]


@pytest.mark.parametrize(("n", "message"), [(0, "at least 1"), (10**16, "at most")])
def test_numbers_of_records_that_are_refused(n, message):
    with pytest.raises(UserError, match=message):
        sampler(None, n)
