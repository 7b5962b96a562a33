"""`cifar10:DIR`: both official kinds of batches; pickles are parsed and never executed."""

import os
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.data import content, load
from dpgen_jax.data.images.photographs import read_batch

N = 3


def batch(i):
    """(pixels [N, 3072], labels [N]) of batch i, 1 to 6; 6 is the test batch."""
    rng = np.random.default_rng(i)
    return rng.integers(0, 256, (N, 3072), dtype=np.uint8), [i, (i + 3) % 10, 9]


def names(suffix=""):
    return [f"data_batch_{i}{suffix}" for i in range(1, 6)] + [f"test_batch{suffix}"]


def string(text, short=True):
    """A byte string as Python 2 writes it."""
    return b"U" + bytes([len(text)]) + text if short else b"T" + struct.pack("<i", len(text)) + text


def official(pixels, labels):
    """A batch as the authors' Python 2 wrote it, opcode by opcode."""
    def number(n):
        return b"K" + bytes([n]) if n < 256 else b"M" + struct.pack("<H", n)
    kind = (b"cnumpy\ndtype\nq\x0b" + string(b"u1") + b"K\x00K\x01\x87q\x0cRq\x0d(K\x03"
            + string(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb")
    array = (b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85"
             + string(b"b") + b"\x87q\x09Rq\x0a(K\x01" + number(len(pixels)) + number(3072)
             + b"\x86" + kind + b"\x89" + string(pixels.tobytes(), short=False) + b"tb")
    return (b"\x80\x02}q\x01(" + string(b"batch_label") + string(b"training batch 1 of 5")
            + string(b"labels") + b"]q\x04(" + b"".join(map(number, labels)) + b"e"
            + string(b"data") + array + string(b"filenames") + b"]q\x0e("
            + string(b"leptodactylus_pentadactylus_s_000004.png") + b"eu.")


def by_python_3(pixels, labels):
    return pickle.dumps({b"data": pixels, b"labels": labels, b"batch_label": b"1 of 5",
                         b"filenames": [b"a.png", b"b.png"]}, 2)


def binary(pixels, labels):
    return np.concatenate([np.array(labels, np.uint8)[:, None], pixels], 1).tobytes()


def write(folder, make, suffix=""):
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names(suffix), 1):
        (folder / name).write_bytes(make(*batch(i)))
    return folder


@pytest.mark.parametrize(("make", "folder", "suffix"), [
    (binary, "cifar-10-batches-bin", ".bin"), (official, "cifar-10-batches-py", ""),
    (by_python_3, "cifar-10-batches-py", "")])
def test_layouts(tmp_path, make, folder, suffix):
    write(tmp_path / folder, make, suffix)
    for place in (tmp_path, tmp_path / folder):
        data = load(f"cifar10:{place}")
        assert data.name == "cifar10" and data.spec == ImageSpec(32, 32, 3, 10)
        assert data.y_train.tolist() == [y for i in range(1, 6) for y in batch(i)[1]]
        assert data.y_test.tolist() == batch(6)[1] and len(data.x_test) == N
        x = batch(2)[0][1]  # red plane, then green, then blue, each by rows
        assert data.x_train[4, 1, 2].tolist() == [x[34], x[1024 + 34], x[2048 + 34]]


def test_the_hand_made_pickle_is_one():
    loaded = pickle.loads(official(*batch(1)), encoding="bytes")
    np.testing.assert_array_equal(loaded[b"data"], batch(1)[0])
    assert loaded[b"labels"] == batch(1)[1]


@pytest.mark.parametrize(("damage", "match"), [
    (lambda data: data[:-1], "has 9218 bytes, not a multiple of 3073"),
    (lambda data: b"", "has 0 bytes"),
    (lambda data: data[:3073] + b"\x0a" + data[3074:], "label 10 in record 1 is outside 0..9")])
def test_bad_binary_batches(tmp_path, damage, match):
    write(tmp_path, binary, ".bin")
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(damage(path.read_bytes()))
    refused(f"data_batch_3.bin.*{match}", load, f"cifar10:{tmp_path}")


def test_missing_batches(tmp_path):
    refused("holds neither data_batch_1.bin nor data_batch_1", load, f"cifar10:{tmp_path}")
    write(tmp_path, official)
    (tmp_path / "test_batch").unlink()
    refused("test_batch is missing", load, f"cifar10:{tmp_path}")
    refused("has 10 classes, --classes 9", load, f"cifar10:{tmp_path}", classes=9)


class Attack:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_is_refused_and_not_executed(tmp_path, protocol):
    write(tmp_path, official)
    sign = tmp_path / "sign"
    pixels, labels = batch(1)
    attack = pickle.dumps({b"data": pixels, b"labels": labels, b"x": Attack(sign)}, protocol)
    pickle.loads(attack)
    assert sign.exists()  # it works where pickles are executed
    sign.unlink()
    (tmp_path / "data_batch_1").write_bytes(attack)
    refused("data_batch_1 is not a CIFAR-10 batch .*nothing in it was", load, f"cifar10:{tmp_path}")
    assert not sign.exists()


@pytest.mark.parametrize(("data", "match"), [
    (b"cposix\nsystem\n(S'touch sign'\ntR.", "it would import posix.system"),
    (b"\x80\x02cos\nsystem\nU\x0atouch sign\x85R.", "it would import os.system"),
    (b"\x80\x02cnumpy\ndtype\nU\x01O\x85R.", "it would call numpy.dtype with other arguments"),
    (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R.", "would call _cod"),
    (b"\x80\x02cnumpy\nndarray\nK\x01\x85R.", "it would call numpy.ndarray"),
    (b"(S'touch sign'\nios\nsystem\n.", "unexpected opcode 83"),
    (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "unexpected opcode 140"),
    (b"\x80\x02]a.", "malformed"), (b"\x80\x02h\x07.", "malformed"),
    (b"\x80\x02K\x01", "malformed"), (b"", "malformed"), (b"\x80\x02].", "contain a dictionary"),
    (b"garbage", "malformed|unexpected"),
    (b"\x80\x02}.", "lacks `data`"), (b"\x80\x02}]]s.", "malformed"),
    (b"\x80\x02K\x01(K\x02K\x03u.", "malformed"),
    (b"\x80\x02]K\x01\x85b.", "malformed")])
def test_other_pickles(data, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(match, read_batch, "some", data, 3072)
    assert not (tmp_path / "sign").exists()


@pytest.mark.parametrize(("content", "match"), [
    ({b"data": np.zeros((2, 3072), np.int16), b"labels": [1, 2]}, "other arguments"),
    ({b"data": np.zeros((2, 3072), np.uint8, order="F"), b"labels": [1, 2]}, "row order"),
    ({b"data": np.zeros((2, 99), np.uint8), b"labels": [1, 2]}, r"shape \(2, 99\)"),
    ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, "2 images, 1 labels"),
    ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, True]}, "2 images, 2 labels"),
    ({b"data": [1], b"labels": [1]}, "lacks `data`"), ({b"fine_labels": [1]}, "lacks `data`")])
def test_other_content(content, match):
    refused(match, read_batch, "some", pickle.dumps(content, 2), 3072)


GOOD = official(*batch(1))


@pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in the parser, of a bad file
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(place, value):
    changed = bytearray(GOOD)
    changed[place] = value
    try:
        x, y = read_batch("some", bytes(changed), 3072)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert x.shape == (N, 3072) and x.dtype == np.uint8 and len(y) == N


@given(st.integers(0, len(GOOD) - 1))
def test_a_truncated_pickle_is_refused(length):
    refused("not a CIFAR-10 batch", read_batch, "some", GOOD[:length], 3072)


def test_what_a_file_manager_leaves_in_a_folder_is_no_other_data_set(tmp_path):
    """A journal that recognises the records by it forgot what was spent on them."""
    folder = write(tmp_path / "c", binary, ".bin")
    known = content(f"cifar10:{folder}")
    (folder / ".DS_Store").write_text("hidden")
    (folder / ".thumbnails").mkdir()
    (folder / ".thumbnails/a.png").write_text("hidden")
    assert content(f"cifar10:{folder}") == known
    (folder / "data_batch_6.bin").write_text("seen")
    assert content(f"cifar10:{folder}") != known
