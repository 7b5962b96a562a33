"""The statements of presets about their data, against the loaders; and how such data are read."""

import dataclasses
import json
import math

import kaggle_file
import numpy as np
import official_photographs as official
import pytest
import toy_rows
from known_data import KNOWN
from refusals import refused

from benchmarks import small_femnist, table_presets
from dpgen_jax import data, evaluate, fit, methods, presets, train
from dpgen_jax.accountant import composition
from dpgen_jax.cli import train_flags
from dpgen_jax.core.config import DataOptions
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.data.images import photographs
from dpgen_jax.run import resolve

ALL = [(method, name) for method in methods.NAMES for name in presets.all_of(method)]
PHOTOGRAPHS = [(method, name) for method, name in ALL if presets.all_of(method)[name].kind]
SYSTEMS = ("datalens", "gpate", "gswgan", "dpac", "dpgan", "pategan")
OFFICIAL = ((162_770, "0"), (19_867, "1"), (19_962, "2"))
"""Images of CelebA's official partition, in their order."""
MERGED = {("gswgan", "femnist-published"): 36}
"""Presets for Federated EMNIST with capitals and small letters in one class."""
FEDERATED = {"gswgan": "mnist", "fedavg_gan": "glyphs"}


def preset_of(method, name):
    return presets.all_of(method)[name]


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    place = tmp_path_factory.mktemp("official")
    return {"celeba": official.celeba(place / "CelebA"),
            "places365": official.places(place / "Places365")}


def units_of(preset):
    config = preset.config
    return config.n_clients if config.protects_clients else preset.records


@pytest.mark.parametrize(("method", "name"), ALL)
def test_delta_of_every_preset_is_one_that_a_run_accepts(method, name):
    preset = preset_of(method, name)
    if preset.epsilon < math.inf:
        composition.check_budget(preset.epsilon, preset.delta, units_of(preset))


def test_deltas_as_the_papers_print_them_are_refused():
    refused("does not protect 182637 records", composition.check_budget, 1.0, 1e-5, 182637)


@pytest.mark.parametrize(("method", "name"), [
    case for case in ALL if case not in PHOTOGRAPHS
    and "carried over to other data" not in preset_of(*case).source])
def test_shape_and_records_of_every_other_preset(method, name):
    preset = preset_of(method, name)
    which = FEDERATED[method] if name.startswith("federated") else name
    found = sorted(key for key in KNOWN if which.startswith(key))
    if found:
        shape, classes, records = KNOWN[found[-1]]
        expected = shape, MERGED.get((method, name), classes), records
    else:
        dataset = loaded(which)
        expected = (dataset.spec.shape, dataset.spec.classes, len(dataset.y_train))
    assert (preset.spec.shape, preset.spec.classes, preset.records) == expected


@pytest.mark.parametrize("name", ["mnist", "femnist", "credit"])
def test_the_loaders_read_these_shapes(name, tmp_path):
    """Generated files in the layout of MNIST, of Federated EMNIST and of Kaggle's credit cards."""
    shape, classes, _ = KNOWN[name]
    if name == "mnist":
        read = [data.load(toy_rows.idx(tmp_path / "mnist"))]
    elif name == "femnist":
        spec = f"femnist:{small_femnist.write(tmp_path, writers=4, images=2)}"
        read = [data.load(spec), data.load(spec, classes=36)]
        assert read[1].spec.classes == MERGED["gswgan", "femnist-published"]
        assert read[1].spec == preset_of("gswgan", "femnist-published").spec
    else:
        kaggle_file.write(tmp_path)
        document = table_presets.without("creditcard_kaggle", "Time")
        (tmp_path / "schema.yaml").write_text(json.dumps(document))
        read = [data.load(f"csv:{tmp_path / 'creditcard.csv'}",
                          schema=str(tmp_path / "schema.yaml"), test_fraction=0.2)]
    assert (read[0].spec.shape, read[0].spec.classes) == (shape, classes)


def loaded(name):
    """The embedded data set by whose name a preset begins."""
    kind = next(kind for kind in ("glyphs", "digits", "breast_cancer") if name.startswith(kind))
    if kind not in LOADED:
        LOADED[kind] = data.load(kind)
    return LOADED[kind]


LOADED: dict = {}


@pytest.mark.parametrize(("method", "name"), PHOTOGRAPHS)
def test_size_and_records_of_photographs(method, name, roots):
    preset = preset_of(method, name)
    options = dataclasses.asdict(resolve.preset_options(preset, roots[preset.kind]))
    assert options["image_size"] == (32 if preset.spec.height == 32 else 64)
    if preset.kind == "places365":
        assert preset.records == options["per_class"] * preset.spec.classes == 120_000
        options["per_class"] = 4
    else:
        parts = photographs.SPLITS[options["split"]]
        assert preset.records == sum(n for n, part in OFFICIAL if part in parts)
    read = data.load(roots[preset.kind], **options)
    assert read.spec == preset.spec
    assert len(read.y_train) == {"train": 12, "train+val": 16, None: 12}[options["split"]]
    assert read.options == {"kind": preset.kind, **{
        key: value for key, value in options.items() if value not in (None, False)}}


def test_the_official_partition_has_these_records(tmp_path):
    """The list at its full length, read by the loader."""
    names = iter(range(1, 202_600))
    path = tmp_path / "list_eval_partition.txt"
    path.write_text("".join(f"{next(names):06d}.jpg {part}\n" for n, part in OFFICIAL
                            for _ in range(n)))
    rows = list(photographs._partition(path).values())
    counts = {split: sum(map(rows.count, parts)) for split, parts in photographs.SPLITS.items()}
    assert counts == {"train": 162_770, "train+val": 182_637}
    stated = {preset_of(*case).records for case in PHOTOGRAPHS
              if preset_of(*case).kind == "celeba"}
    assert stated == set(counts.values())


@pytest.mark.parametrize("method", SYSTEMS)
def test_every_system_has_presets_for_faces_and_scenes(method):
    """Gender and hair in both sizes and Places365, at epsilon 1 and 10."""
    found = {(preset.kind, preset.spec.height, preset.spec.classes, preset.epsilon)
             for preset in presets.all_of(method).values() if preset.kind}
    wanted = {("celeba", size, classes, epsilon) for size in (32, 64) for classes in (2, 3)
              for epsilon in (1.0, 10.0)} | {("places365", 64, 3, 1.0), ("places365", 64, 3, 10.0)}
    assert found >= wanted


def test_teachers_of_datalens_hold_what_its_batch_says():
    for name in ("gender-eps1", "gender-eps10"):
        preset = preset_of("datalens", name)
        assert preset.records // preset.config.teachers == preset.config.batch == 30
    preset = preset_of("datalens", "places-eps10")
    assert (preset.config.top_k, preset.records // preset.config.teachers) == (700, 30)
    preset = preset_of("gswgan", "gender-published")
    assert (preset.records // preset.config.critics, preset.delta) == (64, 1e-5)


def options_of(*words):
    return train_flags.parse("gpate", words)[0].data


def test_a_preset_asks_for_its_size_and_label():
    parsed = options_of("--preset", "gender-s-eps1", "--dataset", "celeba:X")
    assert parsed == DataOptions(image_size=32, attribute="gender", resize="stretch",
                                  split="train+val")
    parsed = options_of("--preset=hair-eps1", "--dataset=celeba:X", "--image-size", "32", "--split",
                         "train")
    assert (parsed.image_size, parsed.attribute, parsed.split) == (32, "hair", "train")
    assert options_of("--dataset", "celeba:X") == DataOptions()
    for dataset in ("idx:X", "npz:X", "folder:X", "unknown:X"):
        assert options_of("--preset", "gender-s-eps1", "--dataset", dataset) == DataOptions()
    parsed = options_of("--preset", "mnist-eps1", "--dataset", "places365:X")
    assert parsed == DataOptions(image_size=28)
    assert options_of("--preset", "table", "--dataset", "celeba:X") == DataOptions()


def test_images_of_another_size_are_refused(tmp_path):
    x, y = np.zeros((6, 12, 12, 3), np.uint8), np.arange(6) % 2
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, classes=2)
    words = ["gpate", "--preset", "gender-s-eps1", "--dataset", f"npz:{tmp_path / 'a.npz'}"]
    refused("gender-s-eps1 is for images of 32 x 32 pixels, and those "
            "of a have 12 x 12; pass --image-size 32 to resize them, or --image-size 12 "
            "to keep theirs", train.command, words)
    preset = preset_of("gpate", "gender-s-eps1")
    for size in (12, 32):
        read = resolve.load_preset_data("gender-s-eps1", preset, words[-1],
                                        DataOptions(image_size=size))
        assert read.spec == ImageSpec(size, size, 3, 2)
        (note,) = read.private_notes
        assert "chosen for 182,637 images of 32 x 32 x 3 in 2 classes; these are 6 images" in note


def test_a_preset_for_tables_says_nothing_of_images():
    preset, glyphs = preset_of("gpate", "table"), loaded("glyphs")
    resolve.require_size("table", preset, glyphs, None)
    assert resolve.noted_preset_data("table", preset, glyphs) is glyphs


TOY = {"generator": "--generator.latent 6 --generator.hidden 8 --generator.channels 4",
       "critics": "--critics 2 --generator.width 8 --critic.width 4 --critic-steps 1 --batch 2 "
                  "--critic-steps-first 1 --pool 2 --records-per-step 4"}
DISCRIMINATOR = ("--discriminator.channels1 4 --discriminator.channels2 4 --teachers 2 --batch 2 "
                 "--d-steps 1 --d-steps-first 1 " + TOY["generator"])
FLAGS = {"datalens": f"--top-k 30 --sigma None {DISCRIMINATOR}",
         "gpate": f"--sigma 100 --bins 2 {DISCRIMINATOR}", "pategan": DISCRIMINATOR,
         "gswgan": TOY["critics"],
         "dpac": f"{TOY['critics']} --classifier.width 4 --t-c 1 --fake-batch 4",
         "dpgan": f"--batch 4 --fakes 4 --g-batch 4 {TOY['generator']}"}


def trained(method, name, dataset, out, *more):
    train.command([method, "--preset", name, "--dataset", dataset, "--steps", "2", "--epsilon",
                   "10", "--out", str(out), "--devices", "1", *FLAGS[method].split(), *more])
    return out


def eps10(method, start):
    return next(name for name in presets.all_of(method) if name.startswith(f"{start}-eps10"))


@pytest.mark.parametrize("method", [
    pytest.param(method, marks=pytest.mark.slow if method == "gpate" else pytest.mark.long)
    for method in SYSTEMS[1:]])
def test_every_system_trains_on_faces(method, roots, tmp_path):
    """Two steps on the official layout, and the evaluation reads the data as the training did."""
    from dpgen_jax.release import bundle

    start = "gender" if method in ("gswgan", "dpac") else "gender-s"
    run = trained(method, eps10(method, start), roots["celeba"], tmp_path / "run")
    release = bundle.load(run)
    assert release.spec == ImageSpec(32, 32, 3, 2)
    assert release.sample(3)[0].shape == (3, 32, 32, 3)
    args = evaluate.Evaluate(
        evaluate.Evaluation(), DataOptions(), run, dataset=roots["celeba"])
    tested = evaluate._held_out(args, release, run)
    options = preset_of(method, eps10(method, start)).options
    assert tested.options == {"kind": "celeba", "image_size": 32, **options}
    assert len(tested.y_train) == (12 if start == "gender" else 16) and len(tested.y_test) == 4
    args = dataclasses.replace(args, data=DataOptions(resize="crop"))
    assert evaluate._held_out(args, release, run).options["resize"] == "crop"
    # Of a release alone the size is known.
    assert evaluate._held_out(args, release, None).options == {
        "kind": "celeba", "image_size": 32, "resize": "crop"}


@pytest.mark.long
def test_datalens_trains_on_scenes(roots, tmp_path):
    from dpgen_jax.release import bundle

    words = "datalens", "places-eps10", roots["places365"], tmp_path / "run", "--per-class", "4"
    refused("which images of a class are taken.*--accept-uncovered", trained, *words)
    run = trained(*words, "--accept-uncovered")
    release = bundle.load(run)
    assert release.spec == ImageSpec(64, 64, 3, 3)
    assert release.spec.class_names == official.LEVEL_2
    assert release.privacy["guarantee"].startswith("not covered")


@pytest.mark.long
def test_fit_tells_the_data_holder_of_another_size(tmp_path, capsys):
    x, y = np.zeros((8, 8, 8, 1), np.uint8), np.arange(8) % 2
    fit("pategan", x, y, classes=2, preset="mnist-eps10", epsilon=10.0, steps=1, teachers=2,
        batch=2, out=tmp_path / "run")
    assert "preset mnist-eps10 was chosen for 60,000 images of 28 x 28" in capsys.readouterr().err
