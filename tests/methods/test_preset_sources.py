"""Every preset says where it is from and what differs from that, and what it names exists."""

import importlib
import json
import re
from pathlib import Path

import pytest

from dpgen_jax import account, methods, presets
from dpgen_jax.cli import terminal

ROOT = Path(__file__).parents[2]
ALL = [(method, name) for method in methods.NAMES for name in presets.all_of(method)]
CITED = ("Wang et al. 2021", "Long et al. 2021", "Chen et al. 2020", "Chen et al. 2023",
         "Jordon et al. 2019", "Xie et al. 2018", "Torkzadehmahani et al. 2019",
         "Harder, Adamczewski and Park", "Augenstein et al. 2020", "Abadi et al. 2016",
         "Bie, Kamath and Zhang 2023", "AI-secure/DataLens", "AI-secure/G-PATE",
         "DP-GAN-DPAC code")
"""The papers and codes of which there are presets, as their sources name them."""
PATH = re.compile(r"\b[a-z_]+(?:/[\w.-]+)+\.(?:py|md|json)\b")
every = pytest.mark.parametrize(("method", "name"), ALL)


@every
def test_a_preset_of_a_paper_says_what_differs_or_that_nothing_does(method, name):
    preset = presets.all_of(method)[name]
    if preset.source.startswith("this library"):
        assert preset.differs == ()
    else:
        assert any(cited in preset.source for cited in CITED), preset.source
        assert preset.differs == ("none",) or all(len(line) > 20 for line in preset.differs)
        assert preset.differs and len(set(preset.differs)) == len(preset.differs)
        assert "none" not in preset.differs or len(preset.differs) == 1
    for line in preset.differs:  # one line each
        assert line == line.strip() and "\n" not in line and len(line) < 240


@every
def test_what_a_preset_names_exists(method, name):
    """Files of this repository, other presets, and modules."""
    preset = presets.all_of(method)[name]
    for text in (preset.source, *preset.differs):
        for path in re.findall(PATH, text):
            assert (ROOT / path).is_file() or (ROOT / "dpgen_jax" / path).is_file(), path
        for module in re.findall(r"\((nets\.\w+)\)", text):
            importlib.import_module(f"dpgen_jax.{module}")
    other = re.match(r"this library: ([\w.-]+) with another", preset.source)
    assert other is None or other[1] in presets.all_of(method)


def test_results_files_are_among_what_is_looked_for():
    found = [path for method, name in ALL for path in re.findall(
        PATH, presets.all_of(method)[name].source) if path.endswith(".json")]
    assert {"benchmarks/results/sweep-gswgan-mnist-eps10-critics.json",
            "benchmarks/results/sweep-dpac-mnist-eps10-critics.json"} <= {*found}
    assert re.findall(PATH, "as in benchmarks/results/sweep-a-eps0.5.json, of MNIST") == [
        "benchmarks/results/sweep-a-eps0.5.json"]


def test_the_papers_that_are_cited_are_cited_by_some_preset():
    sources = [presets.all_of(method)[name].source for method, name in ALL]
    assert [cited for cited in CITED if not any(cited in source for source in sources)] == []


@pytest.mark.parametrize("method", methods.NAMES)
def test_the_command_lists_the_presets_and_what_differs(method, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["account", method, "--presets"])
    terminal.main(account.command)
    lines = capsys.readouterr().out.splitlines()
    for name, preset in presets.all_of(method).items():
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{name}: epsilon"))
        assert lines[at + 1] == f"    source: {preset.source}"
        shown = lines[at + 2:at + 2 + len(preset.differs)]
        assert shown == [f"    differs: {line}" for line in preset.differs]
    page = (ROOT / "docs/reference/methods.md").read_text()
    assert f"```{{preset-list}} {method}\n" in page


@pytest.mark.parametrize("method", methods.NAMES)
def test_an_old_name_of_a_preset_is_no_new_one(method):
    module = methods.get(method)
    for old, new in getattr(module, "RENAMED", {}).items():
        assert old not in presets.all_of(method) and new in presets.all_of(method)


def test_federated_gswgan_as_published_costs_what_is_stated_beside_it(monkeypatch, capsys):
    """The proven epsilon of its noise and steps, the paper's, and the lines that name both."""
    monkeypatch.setattr("sys.argv", ["account", "gswgan", "--preset", "femnist-published",
                                     "--json"])
    terminal.main(account.command)
    shown = json.loads(capsys.readouterr().out)
    rows = json.loads((ROOT / "benchmarks/results/claimed.json").read_text())["results"]["settings"]
    row = next(row for row in rows if row["system"] == "gswgan, federated")
    config = presets.all_of("gswgan")["femnist-published"].config
    assert (config.critics, config.steps, config.batch, config.sigma) == (
        row["critics"], row["steps"], row["batch"], row["sigma"]) == (866, 30000, 32, 1.07)
    assert config.federated and config.critics_per_step == 1 and config.warm_steps == 2000
    assert shown["proven"]["epsilon"] == pytest.approx(row["proven_rotation"], rel=1e-9)
    assert shown["as_published"]["epsilon"] == pytest.approx(row["claimed"], rel=1e-9)
    line, = (line for line in presets.all_of("gswgan")["femnist-published"].differs
             if "promises nothing" in line)
    assert f"epsilon {row['proven_rotation']:.0f} " in line and f"{row['claimed']:.0f} (" in line
