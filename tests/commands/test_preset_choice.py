"""The preset and the method that are taken where the user named none: by what is public alone."""

import dataclasses

import pytest

from dpgen_jax import methods, presets
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.presets import choice, numbers
from dpgen_jax.run import calibrate_config

MNIST = ImageSpec(28, 28, 1, 10)


@pytest.mark.parametrize(("dataset", "name"), [
    ("glyphs", "glyphs"), ("idx:mnist", "mnist"), ("idx:/data/MNIST/raw", "mnist"),
    ("tfds:fashion_mnist", "fashion"), ("idx:FashionMNIST", "fashion"), ("idx:scans", ""),
    ("npz:mnist.npz", ""), ("csv:adult", ""), ("adult:x", "adult"), ("tfds:kmnist", "")])
def test_only_data_sets_that_are_public_have_a_name(dataset, name):
    assert choice.public_name(dataset) == name
    assert choice.public_name("celeba:X", "hair") == "hair" and not choice.public_name("celeba:X")


@pytest.mark.parametrize(("method", "facts", "epsilon", "name"), [
    ("datalens", choice.Facts("mnist", MNIST, 60_000), 9.0, "mnist-eps10-mean"),
    ("prototypes", choice.Facts("mnist", MNIST, 60_000), 9.0, "mnist-eps10-gradients"),
    ("datalens", choice.Facts("", MNIST, 60_000), 0.5, "images-eps1"),
    ("datalens", choice.Facts("glyphs", presets.GLYPHS, 30_000), None, "glyphs"),
    ("datalens", choice.Facts("glyphs", presets.GLYPHS, 30_000), 1.0, "glyphs"),
    ("prototypes", choice.Facts("glyphs", presets.GLYPHS, 30_000), 1.0, "glyphs-eps1-gradients"),
    ("pategan", choice.Facts("glyphs", presets.GLYPHS, 30_000), 1.0, "glyphs"),
    ("datalens", choice.Facts("glyphs", MNIST, 30_000), None, "images-eps10"),  # resized
    ("gpate", choice.Facts("", numbers(7), 500), 1.0, "table-few"),
    ("gpate", choice.Facts("", numbers(7), 50_000), 1.0, "table"),
    ("gpate", choice.Facts("breast_cancer", numbers(30), 455), 1.0, "breast_cancer"),
    ("dpmerf", choice.Facts("", ImageSpec(32, 32, 3, 2), 860), 3.0, "images-few"),
    ("dpmerf", choice.Facts("", ImageSpec(64, 64, 3, 10), 5_000), 1.0, "images-few"),
    ("gswgan", choice.Facts("", ImageSpec(32, 32, 3, 2), 60_000), 1.0, "images-eps1"),
    ("gswgan", choice.Facts("", ImageSpec(64, 64, 3, 10), 10_000), 1.0, "images-large-eps1"),
    ("dpac", choice.Facts("", ImageSpec(64, 64, 3, 10), 60_000), 9.0, "images-large-eps10"),
    ("dpgan", choice.Facts("mnist", MNIST, 2_000), 1.0, "images-few")])  # too few for MNIST's
def test_a_preset_is_chosen_by_what_is_public(method, facts, epsilon, name):
    assert choice.preset_for(method, facts, epsilon).name == name


@pytest.mark.parametrize("method", methods.NAMES)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_no_method_is_refused_and_recommended_at_once(method, epsilon):
    for records in (100, 500, 2_000, 5_000, 20_000):
        for spec in (MNIST, numbers(7)):
            try:
                choice.preset_for(method, choice.Facts("", spec, records), epsilon)
            except UserError as error:
                recommended = str(error).partition("methods that have one: ")[2].split(";")[0]
                assert method not in recommended.split(", ")


@pytest.mark.parametrize("method", methods.NAMES)
def test_no_preset_of_a_named_data_set_serves_other_data(method):
    for facts in (choice.Facts("", MNIST, 50_000), choice.Facts("", numbers(30), 455)):
        try:
            chosen = choice.preset_for(method, facts)
        except UserError as error:
            assert f"{method} has no preset for {facts}" in str(error)
            continue
        assert chosen.name.startswith(("images", "table"))


def test_a_general_preset_is_scaled_to_the_data():
    facts = choice.Facts("", ImageSpec(16, 16, 1, 4), 7_500)
    model = presets.get("gswgan", "images-eps10")[1]
    chosen = choice.preset_for("gswgan", facts, 10.0).preset
    assert chosen.config == dataclasses.replace(model.config, critics=model.config.critics // 8)
    assert chosen.delta == model.delta and choice.preset_for(
        "datalens", dataclasses.replace(facts, records=2_000_000)).preset.delta == 1e-8
    for method, field in (("dpmerf", "batch"), ("dpmerf_ae", "fakes")):
        many = choice.Facts("", ImageSpec(16, 16, 3, 500), 10_000)
        config = choice.preset_for(method, many, 10.0).preset.config
        assert getattr(config, field) == 2000  # four of each class, where two are the least
        methods.get(method).build(dataclasses.replace(config, records=10_000, sigma=1.0), many.spec)
        usual = choice.preset_for(method, dataclasses.replace(facts, records=60_000), 10.0).preset
        assert getattr(usual.config, field) == getattr(
            presets.get(method, "images-eps10")[1].config, field)
    few = choice.Facts("", ImageSpec(8, 8, 1, 4), 300)
    assert choice.preset_for("dpgan", few).preset.config.batch == 150


def test_prototypes_are_fewer_where_a_class_has_fewer_records():
    """A quarter of the records for a class, so half of the ten images; of four times the pixels."""
    facts = choice.Facts("", ImageSpec(56, 56, 3, 4), 6_000)
    config, model = (each.config for each in (
        choice.preset_for("prototypes", facts, 10.0).preset,
        presets.get("prototypes", "images-eps10")[1]))
    assert config == dataclasses.replace(
        model, images=5, teachers=400, step_size=float(f"{50 * 20 / 100 * 2 * 3**0.5:.2g}"))
    methods.get("prototypes").build(dataclasses.replace(config, sigma=1.0), facts.spec)
    many = dataclasses.replace(facts, records=6_000_000)
    assert choice.preset_for("prototypes", many, 10.0).preset.config.images == model.images


@pytest.mark.parametrize("method", ["gswgan", "dpac"])
def test_images_that_are_no_digits_are_moved_by_no_preset_of_critics(method):
    """How digits lie is knowledge put in by hand, which other images must not be given."""
    known = presets.all_of(method)
    moved = {name for name, preset in known.items() if preset.config.generator.warp}
    assert moved == {"mnist-eps10"}
    for shape in ((28, 28, 1), (32, 32, 3)):
        facts = choice.Facts("", ImageSpec(*shape, 10), 60_000)
        assert choice.preset_for(method, facts, 10.0).preset.config.generator.warp == 0


@pytest.mark.parametrize("method", ["gswgan", "dpac"])
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize("shape", [(28, 28, 1), (48, 48, 3), (64, 64, 3)])
@pytest.mark.parametrize("records", [6_000, 60_000])
def test_what_is_chosen_for_large_images_can_be_drawn(method, epsilon, shape, records):
    spec = ImageSpec(*shape, 10)
    preset = choice.preset_for(method, choice.Facts("", spec, records), epsilon).preset
    found = calibrate_config.complete(method, preset.config, spec, Budget(epsilon, preset.delta))
    assert found.steps == preset.config.steps and found.sigma > 1


def test_numbers_of_records_of_clients_decide_nothing():
    one, other = (choice.preset_for("fedavg_gan", choice.Facts("", MNIST, n, clients=True))
                  for n in (50, 200_000))
    assert one == other
    writers = dataclasses.replace(MNIST, classes=62)
    one, other = (choice.preset_for("fedavg_gan", choice.Facts("femnist", writers, n, clients=True))
                  for n in (335_000, 336_000))  # half of those for which there is a preset
    assert one == other and one.name == "femnist"


def test_too_few_records_get_the_methods_that_fit_and_no_useless_advice():
    facts = choice.Facts("", MNIST, 860)
    with pytest.raises(UserError, match="for 860 images.*: mixture, dpmerf, dpgan;"):
        choice.preset_for("datalens", facts)
    assert choice.preset_for("datalens", facts, tuned=True).preset.config.teachers == 57


def test_the_best_method_that_is_there_is_taken(monkeypatch):
    assert {choice.method_for(kind)[0] for kind in choice.BEST} <= set(methods.NAMES)
    monkeypatch.setattr(methods, "NAMES", ("datalens", "dpmerf"))
    assert {choice.method_for(kind)[0] for kind in choice.BEST} == {"dpmerf"}
