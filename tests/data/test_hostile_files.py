"""Files made to fill the memory, to hang or to break a reader: one line, before much is read."""

import gzip
import io
import os
import socket
import struct
import warnings
import zipfile
import zlib

import h5py
import numpy as np
import pytest
from PIL import Image
from test_celeba import write as write_celeba
from test_cifar10 import binary
from test_cifar10 import write as write_cifar10
from test_femnist import write as write_femnist

from dpgen_jax import train
from dpgen_jax.core.types import UserError
from dpgen_jax.data import load

X, Y = np.zeros((4, 8, 8), np.uint8), np.zeros(4, np.uint8)
MB = 1e-3  # in GB, as max_gb takes it


def refused(spec, match, **options):
    with pytest.raises(UserError, match=match) as caught:
        load(spec, **options)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


def idx(array, shape=None):
    shape = array.shape if shape is None else shape
    return struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape) + array.tobytes()


@pytest.fixture
def digits(tmp_path):
    """An idx folder, by the file of its images."""
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(Y))
    return tmp_path / "train-images-idx3-ubyte"


@pytest.mark.parametrize(("shape", "match"), [
    ((2**32 - 1,) * 3, r"takes 7.92e\+19 GB of memory, and 0.1 GB are allowed"),
    ((10**5, 100, 100), "takes 1 GB"), ((0, 2**32 - 1, 2**32 - 1), "holds 0 images"),
    ((4, 0, 2**32 - 1), "has 4 images without pixels")])
def test_an_idx_header_that_promises_more_than_memory(digits, shape, match):
    digits.with_suffix(".gz").write_bytes(gzip.compress(idx(X, shape)))
    refused(f"idx:{digits.parent}", match, max_gb=0.1)


def test_a_gz_bomb_is_not_unpacked_beyond_its_header(digits, monkeypatch):
    read, inner = [], gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, n=-1: read.append(n) or inner(self, n))
    digits.with_suffix(".gz").write_bytes(gzip.compress(idx(X) + bytes(50 * 2**20)))
    refused(f"idx:{digits.parent}", "too long by 1048576 bytes", max_gb=5 * MB)
    assert min(read) >= 0 and max(read) <= 2**20


def promising(path, shape, member="x_train", method=zipfile.ZIP_STORED, body=b"", descr="|u1"):
    """An npz file whose header of one array promises another one than it holds."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, array in {"x_train": X, "y_train": Y, "classes": np.int64(3)}.items():
            out = io.BytesIO()
            if name == member:
                np.lib.format.write_array_header_2_0(
                    out, {"descr": descr, "fortran_order": False, "shape": shape})
                out.write(body)
            else:
                np.save(out, array)
            archive.writestr(f"{name}.npy", out.getvalue())
    return path


@pytest.mark.parametrize("shape", [(10**12, 8, 8), (10**30,), (-4, 8, 8), (4, 8, 8), (4.5, 8),
                                   (0, 2**62, 2**62), (True, 8, 8)])
@pytest.mark.parametrize("member", ["x_train", "y_train", "classes"])
def test_an_npz_header_that_promises_what_is_not_there(tmp_path, shape, member):
    refused(f"npz:{promising(tmp_path / 'a.npz', shape, member)}", "a.npz")


@pytest.mark.parametrize("descr", ["|O", "|V8", "<M8[s]", "|U0", [("a", "|u1")], "(2,)u1", "nan"])
def test_an_npz_array_of_an_odd_type(tmp_path, descr):
    path = promising(tmp_path / "a.npz", (4,), "y_train", descr=descr, body=bytes(32))
    refused(f"npz:{path}", "is not read without pickles|cannot be read as npz")


def test_an_npz_header_that_is_nested_or_long(tmp_path):
    for text in (b"(" * 5000, b"{'descr': " + b"[" * 3000, b" " * 60000):
        body = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("x_train.npy", body)
        refused(f"npz:{tmp_path / 'a.npz'}", "a.npz cannot be read as npz", classes=2)


def test_a_zip_bomb(tmp_path):
    path = promising(tmp_path / "a.npz", (50 * 2**20,), method=zipfile.ZIP_DEFLATED,
                     body=bytes(50 * 2**20))
    assert path.stat().st_size < 10**5
    refused(f"npz:{path}", "unpack to that, takes 0.0524 GB of memory, and 0.005 GB", max_gb=5 * MB)


def test_npz_members_that_are_no_arrays_or_twice_there(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_train", b"text")
    refused(f"npz:{path}", "cannot be read as npz", classes=3)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        for name in ("x_train.npy", "x_train.npy"):
            archive.writestr(name, b"")
    refused(f"npz:{path}", "holds x_train twice", classes=3)


@pytest.mark.parametrize("which", ["x_train", "y_train", "client_id", "classes"])
@pytest.mark.parametrize("kind", ["i1", "u8", "f2", "g", "c8", "?", "S3", "U2", "M8[s]", ">f4"])
@pytest.mark.parametrize("shape", [(), (0,), (4,), (4, 0), (4, 8, 0), (4, 0, 8, 1), (4, 8, 8, 1),
                                   (4, 8, 8, 1, 1), (4, 1, 64)])
def test_arrays_of_any_type_and_rank_are_read_or_refused_in_one_line(tmp_path, which, kind, shape):
    array = np.asfortranarray(np.zeros(shape, kind))
    np.savez(tmp_path / "a.npz", **{"x_train": X, "y_train": Y, which: array})
    try:
        load(f"npz:{tmp_path / 'a.npz'}", classes=None if which == "classes" else 3, image_size=4)
    except UserError as error:
        assert "\n" not in str(error)


# Images.

def pictures(root, **images):
    for name, image in images.items():
        path = root / "train" / "a" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path) if isinstance(image, Image.Image) else path.write_bytes(image)
    return f"folder:{root}"


def png(width, height, depth=8, transparent=b""):
    """The header of a gray image of this size, and a body of a few bytes."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(
        ">2I5B", width, height, depth, 0, 0, 0, 0)) + (
            chunk(b"tRNS", transparent) if transparent else b"") + chunk(
                b"IDAT", zlib.compress(bytes(9)))


def test_a_transparent_gray_of_few_bits_is_not_guessed(tmp_path):
    """Pillow compares 15 of 4 bits with pixels of 8."""
    spec = pictures(tmp_path, one=Image.new("L", (8, 8)), two=png(8, 8, 4, b"\0\x0f"))
    refused(spec, "two.png has a transparent colour, .*save it with an alpha", channels=1)
    assert load(spec, channels=1, skip_bad=True).y_train.tolist() == [0, -1]


@pytest.mark.parametrize("side", [10_000, 60_000])  # Pillow warns of one, and refuses the other
def test_an_image_that_is_a_decompression_bomb(tmp_path, side, recwarn):
    spec = pictures(tmp_path, one=Image.new("L", (8, 8)), two=png(side, side))
    refused(spec, "two.png unpacks to more than 89,478,485 pixels", channels=1)
    assert not recwarn.list
    data = load(spec, channels=1, image_size=8, skip_bad=True)
    assert data.y_train.tolist() == [0, -1]


def test_what_pillow_warns_of_is_not_shown(tmp_path, recwarn):
    """A warning would tell something of one file, and is not marked as private."""
    spec = pictures(tmp_path, one=Image.new("L", (8, 8)), two=b"")
    cut_off = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01\x03\0\xff\0\0\0"
    Image.new("L", (8, 8)).save(tmp_path / "train/a/two.png", "JPEG", exif=cut_off)
    assert load(spec, channels=1).count == 2 and not recwarn.list


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_a_link_to_nothing_is_a_file_that_cannot_be_used(tmp_path):
    spec = pictures(tmp_path, one=Image.new("L", (8, 8)))
    (tmp_path / "train/a/two.png").symlink_to(tmp_path / "nothing")
    refused(spec, "two.png cannot be read as an image: it is missing", channels=1)
    assert load(spec, channels=1, skip_bad=True).y_train.tolist() == [0, -1]


def test_an_image_of_another_shape_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    spec = pictures(tmp_path, one=Image.new("L", (8, 8)), two=png(9000, 9000))
    monkeypatch.setattr(Image.Image, "convert", lambda image, mode: image if max(image.size) < 100
                        else pytest.fail("decoded"))
    refused(spec, r"two.png has shape \(9000, 9000, 1\), the first image \(8, 8, 1\)")


@pytest.mark.parametrize(("size", "match"), [
    (10**9, "--image-size 1000000000 is too large; give 4 to 4096 pixels"),
    (100_000, "too large"), (4096, "takes 0.1.* GB of memory, and 0.05 GB are allowed"),
    (-1, "too small")])
@pytest.mark.parametrize("source", ["folder", "npz", "digits", "glyphs"])
def test_an_image_size_beyond_memory(tmp_path, size, match, source):
    spec = pictures(tmp_path, **{f"i{i}": Image.new("L", (8, 8)) for i in range(10)})
    np.savez(tmp_path / "a.npz", x_train=np.zeros((10, 8, 8), np.uint8), y_train=np.zeros(10, int))
    spec = {"folder": spec, "npz": f"npz:{tmp_path / 'a.npz'}"}.get(source, source)
    options = {"classes": 3} if source == "npz" else {}
    if source in ("digits", "glyphs"):
        match = match.replace("0.1.*", ".*")
    refused(spec, match, image_size=size, max_gb=0.05, **options)


@pytest.mark.parametrize("max_gb", [0, -1, float("nan")])
def test_a_limit_of_nothing(max_gb):
    refused("digits", "--max-gb is .*; it must be above 0", max_gb=max_gb)


def test_too_many_classes_and_an_odd_path():
    refused("digits", "--classes 1000000 was given", classes=10**6)
    refused("npz:a\0b", "is not a path|not found", classes=3)
    refused("npz:" + "a" * 300, "is not a path|not found", classes=3)
    refused("npz:~nobody-here/x.npz", "is not a path|not found", classes=3)


# What never ends.

@pytest.fixture(params=["pipe", "socket", "device", "folder"])
def endless(request, monkeypatch):
    """Puts such a thing at a path."""
    def put(path):
        path.unlink(missing_ok=True)
        if request.param == "pipe":
            os.mkfifo(path)
        elif request.param == "device":
            path.symlink_to("/dev/zero")
        elif request.param == "folder":
            path.mkdir()
        else:
            monkeypatch.chdir(path.parent)  # the name of a socket is short
            socket.socket(socket.AF_UNIX).bind(path.name)
        return path
    return put


def test_no_reader_opens_a_pipe_a_socket_or_a_device(tmp_path, endless, digits):
    refused(f"npz:{endless(tmp_path / 'a.npz')}", "is not a regular file", classes=3)
    endless(digits)
    refused(f"idx:{tmp_path}", "images-idx3-ubyte.* is missing")
    refused(f"femnist:{endless(tmp_path / 'fed_emnist_train.h5')}", "is not a regular file")
    spec = pictures(tmp_path / "pets", one=Image.new("L", (8, 8)), two=b"")
    endless(tmp_path / "pets" / "train" / "a" / "two.png")
    refused(spec, "two.png cannot be read as an image: it is missing or not a regular file")
    assert load(spec, skip_bad=True).y_train.tolist() == [0, -1]
    names = endless(tmp_path / "names.txt")
    if not names.is_dir():
        refused(spec, "names.txt is not a regular file", class_names=str(names))
    root = write_celeba(tmp_path / "celeba")
    endless(root / "list_attr_celeba.txt")
    refused(f"celeba:{root}", "list_attr_celeba.txt is not a regular file")
    batches = write_cifar10(tmp_path / "cifar", binary, ".bin")
    endless(batches / "data_batch_2.bin")
    refused(f"cifar10:{batches}", "data_batch_2.bin is missing")


# Lists, batches and HDF5.

def test_a_list_or_a_batch_beyond_memory(tmp_path):
    root = write_celeba(tmp_path / "celeba")
    refused(f"celeba:{root}", "list_attr_celeba.txt is larger than .*--max-gb", max_gb=1e-7)
    batches = write_cifar10(tmp_path / "cifar", binary, ".bin")
    refused(f"cifar10:{batches}", "the batches in .* GB of memory", max_gb=1e-5)


def test_hdf5_is_checked_by_its_headers_and_follows_no_link(tmp_path):
    path = tmp_path / "fed_emnist_train.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("examples/w")
        group.create_dataset("pixels", (10**9, 28, 28), "f4", chunks=(1, 28, 28))
        group.create_dataset("label", (10**9,), "i4", chunks=(1,))
    assert path.stat().st_size < 10**5
    refused(f"femnist:{path}", r"by its 1 clients, takes 3.14e\+03 GB")
    other = write_femnist(tmp_path / "fed_emnist_other.h5")
    with h5py.File(path, "w") as file:
        file["examples/w"] = h5py.ExternalLink(other.name, "examples/f0000_14")
    refused(f"femnist:{path}", "client w: no `pixels` and `label`")


def test_names_that_a_terminal_cannot_show(tmp_path):
    spec = pictures(tmp_path, **{"a\nb": b"", "c": Image.new("L", (8, 8))})
    refused(spec, r"a\\nb.png cannot be read")
    data = load(spec, skip_bad=True)
    assert "\n" not in data.private_notes[0]
    bad = os.fsencode(tmp_path / "train") + b"/\xff"
    os.mkdir(bad)
    refused(spec, r"udcff' cannot be the name of a class", skip_bad=True)


@pytest.mark.parametrize("flags", [
    ["--image-size", "1000000000"], ["--image-size", "100000"], ["--max-gb", "0.000001"],
    ["--class-names", "pipe"], ["--channels", "2"]])
def test_a_command_ends_with_the_exit_code_of_bad_input(tmp_path, call, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    spec = pictures(tmp_path, one=Image.new("L", (64, 64)))
    code, _, err = call(train, "--dataset", spec, "--out", "run", *flags)
    assert code == 2 and err.startswith("error: ") and err.count("\n") == 1, err
    assert not (tmp_path / "run").exists()
