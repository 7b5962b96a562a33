"""The curves of accuracy by epsilon."""

import matplotlib.image
import pytest

from benchmarks import systems_curves
from benchmarks.systems import half_width

pytestmark = pytest.mark.long


def row(method, epsilon, score, data="mnist", **more):
    return {"method": method, "dataset": data, "epsilon": epsilon, "steps": 5, "preset_steps": 5,
            "gen2real": {"cnn": {"accuracy": score}}} | more


@pytest.fixture
def rows(monkeypatch):
    each = [row("mixture", e, {"mean": m, "values": [m - .01, m, m + .01]}, repeats=3)
            for e, m in ((10.0, .9), (1.0, .8), (0.2, .5))]
    each += [row("dpgan", e, {"mean": .7, "values": [.7]}, steps=3) for e in (0.2, 1.0, 3.0)]
    each += [row("dpmerf", e, {"mean": .6, "values": [.6]}) for e in (1.0, 10.0)]
    each.append(row("mixture", "inf", {"mean": .99, "values": [.99]}))
    monkeypatch.setattr(systems_curves, "system_rows", lambda: each)


def test_a_curve_has_more_than_two_budgets_and_each_its_interval(rows):
    found = systems_curves.curves("mnist")
    assert found.keys() == {"mixture", "dpgan"} and found["mixture"].keys() == {0.2, 1.0, 10.0}
    assert found["mixture"][1.0]["half"] == half_width([.79, .8, .81])
    assert found["dpgan"][3.0] == {"mean": .7, "fewer": True, "half": 0.0}
    assert systems_curves.curves("fashion") == {}


def test_the_table_marks_what_is_missing_and_fewer_steps(rows):
    head, _, mixture, dpgan = systems_curves.curves_table().splitlines()
    assert head == "| data | system | epsilon 0.2 | epsilon 1 | epsilon 3 | epsilon 10 |"
    assert mixture == ("| MNIST | `mixture` | 0.500 ± 0.025 | 0.800 ± 0.025 |  | 0.900 ± 0.025 |")
    assert dpgan == "| MNIST | `dpgan` | 0.700\\* | 0.700\\* | 0.700\\* |  |"


def test_the_picture_has_curves(rows, tmp_path):
    image = matplotlib.image.imread(systems_curves.draw(tmp_path / "curves.png"))
    left, right = image[:, :image.shape[1] // 2], image[:, image.shape[1] // 2:]
    coloured = [(abs(half[..., 0] - half[..., 2]) > 0.3).sum() for half in (left, right)]
    assert coloured[0] > 500 and coloured[1] == 0
