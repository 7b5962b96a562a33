"""Every method makes the same bytes on 1 process with 4 devices, on 2 with 2, and on 4 with 1."""

import functools

import many_processes as processes
import pytest
from seeded import CASES, LONG, SLOW, dataset

from dpgen_jax import methods
from dpgen_jax.accountant import ledger as books

EVERY = CASES | SLOW | {name: LONG[name] for name in (
    "gswgan images secret draw", "gswgan images federated", "fedavg_gan images")}
LAYOUTS = [(1, 4), (2, 2), (4, 1)]


def alone(name):
    """Whether a method takes one device of a CPU; `test_one_device` has how it refuses several."""
    return EVERY[name].method in ("marginals", "mixture")


def made(place, cases, count, devices):
    """The folder of seeded runs of these cases, on so many processes with so many devices."""
    place.mkdir()
    codes, said = processes.finish(processes.start_watched(
        count, devices, place, cases=cases), place)
    assert codes == [0] * count, said[-3000:]
    return place


def model(place, name):
    return (place / name.replace(" ", "-") / "release/generator.safetensors").read_bytes()


def blocks(place, process=0):
    """Digests of what each block of rounds was computed with in a process."""
    lines = (place / f"{process}.audit").read_text().splitlines()
    return [line for line in lines if line.startswith("block ")]


@pytest.mark.slow
def test_two_processes_release_what_one_does_in_seconds(tmp_path):
    """Methods that compile soonest are compared, with and without a network in each unit."""
    names = ["topagg_sgd table", "prototypes images signs", "prototypes images"]
    one, two = (made(tmp_path / str(n), names, n, 2 // n) for n in (1, 2))
    for name in names:
        assert model(one, name) == model(two, name), name
    assert blocks(one) == blocks(two) == blocks(two, 1) != []


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """The folder of the runs of all methods on a layout; each layout is started once or twice."""
    @functools.cache
    def on(count, devices, takes_one):
        names = [name for name in EVERY if alone(name) == takes_one]
        with pytest.MonkeyPatch.context() as patch:
            if takes_one:  # XLA's older kernels, which tests take, differ on one device and several
                patch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
            return made(tmp_path_factory.mktemp("all") / "runs", names, count, devices)

    return on


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_method_makes_the_same_bytes_on_every_layout(everything, name):
    takes_one = alone(name)
    first, *others = [everything(count, 1 if takes_one else devices, takes_one)
                      for count, devices in LAYOUTS]
    assert blocks(first)
    for place in others:
        assert model(first, name) == model(place, name)
        ledgers = [books.account(books.read(p / name.replace(" ", "-") / "ledger.jsonl"))
                   for p in (first, place)]
        assert ledgers[0].spent() == ledgers[1].spent()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("count", "devices"), LAYOUTS[1:])
def test_no_process_computes_with_other_noise(everything, count, devices):
    """And none but the first draws any."""
    place = everything(count, devices, False)
    leader = blocks(place)
    assert leader
    for process in range(1, count):
        assert blocks(place, process) == leader
        assert "source" not in (place / f"{process}.audit").read_text()
    assert "source" in (place / "0.audit").read_text()


def test_every_method_is_compared():
    assert {case.method for case in EVERY.values()} == set(methods.NAMES)
    assert all(len(dataset(case.data).x_train) for case in EVERY.values())
