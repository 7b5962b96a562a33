"""The command `evaluate` on a table: what it writes, shows and refuses."""

import dataclasses
import json

import pytest
from people_table import SPEC, table

from dpgen_jax import evaluate
from dpgen_jax.core.types import TableSpec, UserError
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import assess

pytestmark = pytest.mark.slow


@dataclasses.dataclass
class FakeDataset:
    spec: TableSpec = SPEC
    name: str = "people"
    notes: tuple = ()
    subjects: None = None
    x_train, y_train = table(120, 8)
    x_test, y_test = table(100, 9)


@dataclasses.dataclass
class FakeRelease:
    spec: TableSpec = SPEC
    method: str = "gpate"
    config: dict = dataclasses.field(default_factory=dict)
    privacy = {"method": "gpate", "preset": None, "epsilon": 1.0, "delta": 1e-5, "steps": 9,
               "relation": "replace-one", "unit": "record", "noise_source": "os-entropy",
               "accountant": "exact", "events": [], "not_accounted": [], "data_notes": [],
               "data_dependent_epsilon": None, "package_version": "0", "records": 120}
    encoded = staticmethod(table)
    classifies = False
    model = None

    def arrays(self, n, labels=None, seed=None):
        x, y = table(n, seed)
        return transform.decode(SPEC, x), y


@pytest.fixture
def dataset(monkeypatch):
    from dpgen_jax import data
    from dpgen_jax.release import bundle

    dataset = FakeDataset()
    monkeypatch.setattr(assess.bundle, "tables", lambda *_: ())
    monkeypatch.setattr(assess, "Release", FakeRelease)
    monkeypatch.setattr(assess, "Dataset", FakeDataset)
    monkeypatch.setattr(data, "load", lambda spec, **options: dataset)
    monkeypatch.setattr(bundle, "load", lambda source: FakeRelease())
    return dataset


def run(tmp_path, *more):
    (tmp_path / "release").mkdir(exist_ok=True)
    evaluate.command([str(tmp_path), "--dataset", "csv:people.csv", "--schema", "people.yaml",
                      "--samples", "100", "--seeds", "1", *more])


def test_the_command_writes_and_shows_a_table(dataset, tmp_path, capsys):
    run(tmp_path, "--classifiers", "lr", "adaboost", "--by", "sex", "--by", "sex,ill",
        "--targets", "pay")
    result = json.loads((tmp_path / "evaluation" / "metrics.json").read_text())
    assert result["dataset"] == "people" and set(result["gen2real"]) == {"lr", "adaboost"}
    assert [group["by"] for group in result["subgroups"]] == ["sex"] * 2 + ["sex, ill"] * 4
    assert "too few" in result["subgroups"][-1]["note"] and [*result["targets"]] == ["pay"]
    printed = capsys.readouterr().out
    assert "reaches 1.00 AUROC on real ones (that of real records 1.00)." in printed
    assert "independent columns 0." in printed
    row = next(line for line in printed.splitlines() if line.split()[:2] == ["lr", "auroc"])
    assert "gen2real" in row and "real2real" in row
    assert result["membership"]["allowed"]["advantage"] < 0.5  # by the statement
    assert "The strongest of 3 attacks" in printed and "detection auroc" in printed
    assert "one way tvd" in printed and "real against real" in printed
    assert "break the schema: 0\n" in printed and "not covered by epsilon" in printed


def test_the_command_refuses_what_does_not_fit_in_one_line(dataset, tmp_path):
    with pytest.raises(UserError, match="unknown classifier 'cnn'"):
        run(tmp_path, "--classifiers", "cnn")
    dataset.x_test = None
    with pytest.raises(UserError, match="--test-csv"):
        run(tmp_path)
    columns = (*SPEC.columns[:3], dataclasses.replace(SPEC.columns[3], nullable=True))
    dataset.spec = dataclasses.replace(SPEC, columns=columns)
    with pytest.raises(UserError, match="differ from column 'mark' on") as error:
        run(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "source", "expected"), [
    ("train", "csv:/x/credit card/train.csv.gz", "credit-card"),
    ("people", "csv:people.csv", "people"),
    ("data", "npz:scans/data.npz", "scans"), ("train", "idx:train", "train")])
def test_a_file_that_is_named_after_a_part_is_called_by_its_folder(name, source, expected):
    assert evaluate._named(name, source) == expected
