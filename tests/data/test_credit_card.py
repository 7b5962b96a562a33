"""The credit card file as Kaggle publishes it, read by a packaged schema."""

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.data import load
from dpgen_jax.data.table.transform import decode

NAMES = ["Time", *(f"V{i}" for i in range(1, 29)), "Amount", "Class"]


@pytest.fixture
def path(tmp_path):
    """Quoted names and classes, plain numbers of many digits; R wrote one Time as 1e+05."""
    rows = [("0", "149.62", "0"), ("1e+05", "0", "1"), ("172792", "25691.16", "0")]
    lines = [",".join(f'"{name}"' for name in NAMES)]
    numbers = [f"{(-1)**i * 0.07237143892 * i:.14f}" for i in range(28)]
    lines += [",".join([time, *numbers, amount, f'"{label}"']) for time, amount, label in rows]
    (tmp_path / "creditcard.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "creditcard.csv"


def test_it_loads_unchanged(path):
    data = load(f"csv:{path}", schema="creditcard_kaggle")
    assert data.spec.shape == (30,) and data.y_train.tolist() == [0, 1, 0]
    codes = decode(data.spec, data.x_train)
    assert codes[:, 0].tolist() == [0, 100000, 172792]
    np.testing.assert_allclose(codes[:, -1], [149.62, 0, 2000], rtol=1e-5)
    assert data.private_notes == (
        f"{path}: 1 values outside the bounds of the schema were clipped (column Amount: 1)",)


def test_the_schema_without_time_says_so(path):
    refused("column 'Time' is not declared", load, f"csv:{path}", schema="creditcard")
