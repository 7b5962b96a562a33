"""Decoding of image files: in parallel, what is skipped, and the cache."""

import os
import stat
import struct

import numpy as np
import pytest
from PIL import Image, ImageOps
from refusals import refused

from dpgen_jax.core import arrays
from dpgen_jax.core.types import EMPTY, UserError
from dpgen_jax.data import cache, load
from dpgen_jax.data.images import files

COUNT = 24


@pytest.fixture
def root(tmp_path, rng):
    """Colour jpgs of 20 x 26 pixels in two classes, `a` and `b`, and 4 for testing."""
    for i in range(COUNT + 4):
        path = tmp_path / "faces" / ("train" if i < COUNT else "test") / "ab"[i % 2] / f"{i:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (26, 20, 3), dtype=np.uint8)).save(path)
    return tmp_path / "faces"


@pytest.fixture
def many(tmp_path, monkeypatch):
    """The sets here count as large; returns the cache folder."""
    monkeypatch.setattr(files, "MANY", 10)
    monkeypatch.setattr(files, "BLOCK", 5)
    monkeypatch.setenv("DPGEN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def decodes(monkeypatch):
    """Paths that were decoded."""
    seen, inner = [], files.decoded_pixels
    monkeypatch.setattr(files, "decoded_pixels", lambda path, **rest: seen.append(path) or inner(
        path, **rest))
    return seen


def listed(root):
    return sorted((root / "train").rglob("*.jpg"), key=lambda path: path.name)


def pixels(cache_folder):
    (path,) = cache_folder.glob("*/pixels.npy")
    return path


def spoil(path):
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize("size", [None, 8])
@pytest.mark.parametrize("block", [1, 5, 512])
def test_as_one_after_the_other(root, monkeypatch, block, size):
    """Known answer: Pillow called file by file."""
    monkeypatch.setattr(files, "BLOCK", block)
    expected = []
    for path in listed(root):
        image = Image.open(path)
        image = ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC) if size else image
        expected.append(np.asarray(image))
    data = load(f"folder:{root}", image_size=size)
    np.testing.assert_array_equal(data.x_train, expected)
    assert data.y_train.tolist() == [0, 1] * 12 and len(data.x_test) == 4


def test_a_large_set_is_the_same_from_the_cache(root, many, decodes):
    plain = load(f"folder:{root}", image_size=8)
    assert len(decodes) == COUNT + 4
    again = load(f"folder:{root}", image_size=8)
    assert len(decodes) == COUNT + 4  # none more
    files.MANY = 1000
    small = load(f"folder:{root}", image_size=8)
    for data in (again, small):
        for part in ("x_train", "y_train", "x_test", "y_test"):
            np.testing.assert_array_equal(getattr(data, part), getattr(plain, part))
    assert arrays.mapping(again.x_train) and not arrays.mapping(small.x_train)
    assert not plain.x_train.flags.writeable and plain.notes == small.notes
    assert str(many) in plain.private_notes[-1] and not small.private_notes


def test_the_cache_is_its_owners_own(root, many):
    load(f"folder:{root}")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (many, *many.rglob("*"))}
    assert set(modes.values()) == {0o700, 0o600}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())
    assert sorted(path.name for path in many.rglob("*.*")) == ["meta.json", "pixels.npy"]
    many.chmod(0o755)
    refused("is open to other users.*chmod 700", load, f"folder:{root}")


def test_a_small_set_leaves_no_cache(root, tmp_path, monkeypatch):
    monkeypatch.setenv("DPGEN_CACHE", str(tmp_path / "cache"))
    load(f"folder:{root}")
    assert not (tmp_path / "cache").exists()


def test_another_size_or_a_changed_source_is_decoded_anew(root, many, decodes):
    load(f"folder:{root}", image_size=8)
    load(f"folder:{root}", image_size=6)
    assert len(decodes) == 2 * (COUNT + 4)
    path = listed(root)[3]
    Image.new("RGB", (20, 26), (9, 9, 9)).save(path)
    data = load(f"folder:{root}", image_size=8)
    assert len(decodes) == 3 * (COUNT + 4) and (data.x_train[3] == 9).all()
    os.utime(path, ns=(1, 1))  # the time alone
    load(f"folder:{root}", image_size=8)
    path.rename(path.with_name("99.jpg"))  # the name alone
    load(f"folder:{root}", image_size=8)
    assert len(decodes) == 5 * (COUNT + 4)


@pytest.mark.parametrize("damage", [
    lambda file: file.write_bytes(b""), lambda file: file.write_bytes(b"garbage"),
    lambda file: file.write_bytes(file.read_bytes()[:-9]), lambda file: file.unlink(),
    lambda file: file.write_bytes(file.read_bytes()[:-1] + b"\x01"),  # a pixel
    lambda file: np.save(file, np.array([{}], object), allow_pickle=True),
    lambda file: file.with_name("meta.json").unlink(),
    lambda file: file.with_name("meta.json").write_text("[]"),
    lambda file: file.with_name("meta.json").write_text('{"bad": [1], "crc32": 0}')])
def test_a_damaged_entry_is_decoded_anew(root, many, decodes, damage):
    plain = load(f"folder:{root}", image_size=8).x_train.copy()  # not mapped to what is damaged
    last = pixels(many).read_bytes()
    damage(pixels(many))
    again = load(f"folder:{root}", image_size=8)
    assert len(decodes) == 2 * (COUNT + 4) and pixels(many).read_bytes() == last
    np.testing.assert_array_equal(again.x_train, plain)


def test_a_failed_decode_leaves_nothing(root, many):
    spoil(listed(root)[-1])
    refused("23.jpg cannot be read as an image; replace it", load, f"folder:{root}")
    assert list(many.iterdir()) == []


def test_a_folder_that_cannot_be_written(root, many, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPGEN_CACHE", str(tmp_path / "file"))
    refused("file cannot be written .*set DPGEN_CACHE", load, f"folder:{root}")
    monkeypatch.setenv("DPGEN_CACHE", str(many))

    def full(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(cache, "_header", full)
    refused("No space left on device.*free some space", load, f"folder:{root}")
    assert list(many.iterdir()) == []


def test_another_run_may_finish_first(root, many, tmp_path):
    entry = cache.entry(listed(root), "RGB", 8)
    block = cache.Decoded(np.ones((2, 8, 8, 3), np.uint8))

    def blocks():
        yield block
        cache.store(entry, [block, block])  # the other run, in between
        yield block
    cache.store(entry, blocks())
    assert cache.load(entry, 4).pixels.shape == (4, 8, 8, 3)
    assert cache.load(entry, 5) is None
    assert [path.name for path in many.iterdir()] == [entry.name]


@pytest.mark.parametrize("large", [False, True])
def test_skip_bad(root, large, monkeypatch, tmp_path):
    """An image that cannot be decoded leaves an empty slot, and only the data holder is told."""
    if large:
        monkeypatch.setattr(files, "MANY", 10)
        monkeypatch.setenv("DPGEN_CACHE", str(tmp_path / "cache"))
    whole = load(f"folder:{root}", image_size=8)
    bad = [listed(root)[2], listed(root)[13], root / "test" / "a" / "24.jpg"]
    for path in bad:
        spoil(path)
    for _ in range(2):
        refused("^3 of 28 images cannot be used: .*02.jpg cannot be "
                "read .*13.jpg cannot .*24.jpg cannot .*--skip-bad", load, f"folder:{root}",
                image_size=8)
        data = load(f"folder:{root}", image_size=8, skip_bad=True)
        x, y = whole.x_train.copy(), whole.y_train.copy()
        x[[2, 13]], y[[2, 13]] = 0, EMPTY
        np.testing.assert_array_equal(data.x_train, x)
        np.testing.assert_array_equal(data.y_train, y)
        assert len(data.x_test) == 3 and data.y_test.tolist() == [1, 0, 1]
        line = data.private_notes[0]
        assert "cannot be used as images: 3 (" in line and all(str(path) in line for path in bad)
        assert "02.jpg" not in repr(data.notes)


def test_skip_bad_with_many_or_only_bad_files(root, monkeypatch, many):
    for path in listed(root)[:22]:
        spoil(path)
    for _ in range(2):  # also where the cache knows the others
        with pytest.raises(UserError, match="^22 of 28 images .* and 2 more; replace") as caught:
            load(f"folder:{root}")
        assert str(caught.value).count(".jpg cannot be read as an image") == 20
        line = load(f"folder:{root}", skip_bad=True).private_notes[0]
    assert "images: 22 (" in line and line.endswith("and 2 more)") and line.count(".jpg") == 20
    for path in (*listed(root), *(root / "test").rglob("*.jpg")):
        spoil(path)
    for large in (1, 1000):
        monkeypatch.setattr(files, "MANY", large)
        refused("none of 28 files can be used as an image", load, f"folder:{root}", skip_bad=True)


def test_skip_bad_does_not_skip_another_shape(root):
    Image.new("L", (20, 20), 4).save(root / "train" / "a" / "small.png")
    refused("small.png has shape .*--image-size", load, f"folder:{root}", skip_bad=True)


# Each kind of file becomes an image by a fixed rule, or is a bad file.

STEPS = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
DEEP = STEPS.astype(np.uint16) << 8 | 0x80
ALPHA = np.where(np.eye(8), 0, 255).astype(np.uint8)


def image(*bands, mode="L"):
    made = [Image.fromarray(band) for band in bands]
    return Image.merge(mode, made) if len(made) > 1 else made[0]


def palette(colours):
    made = Image.new("P", (8, 8))
    made.putdata((ALPHA > 0).ravel().tolist())
    made.putpalette(colours)
    return made


OVER_WHITE = np.where(ALPHA, STEPS, 255)
SHAPES = {  # a file of gray pixels: how it is saved, and what it becomes
    "a.webp": (image(*[STEPS] * 3, mode="RGB"), {"lossless": True}, STEPS),
    "b.tif": (image(STEPS), {}, STEPS),
    "c.TIFF": (image(STEPS), {"compression": "tiff_lzw"}, STEPS),
    "d.png": (image(DEEP), {}, STEPS), "e.tif": (image(DEEP), {}, STEPS),
    "f.tif": (Image.frombytes("I;16B", (8, 8), DEEP.astype(">u2").tobytes()), {}, STEPS),
    "g.tif": (image(DEEP), {"tiffinfo": {262: 0}}, 255 - STEPS),
    "h.png": (image(STEPS, ALPHA, mode="LA"), {}, OVER_WHITE),
    "i.png": (image(*[STEPS] * 3, ALPHA, mode="RGBA"), {}, OVER_WHITE),
    "j.png": (image(STEPS), {"transparency": 8}, np.where(STEPS == 8, 255, STEPS)),
    "k.png": (image(*[STEPS] * 3, mode="RGB"), {"transparency": (8, 8, 8)},
              np.where(STEPS == 8, 255, STEPS)),
    "l.png": (image(DEEP), {"transparency": 0x880}, np.where(STEPS == 8, 255, STEPS)),
    "m.png": (palette([9] * 3 + [50] * 3), {"transparency": 0}, np.where(ALPHA, 50, 255)),
    "n.webp": (image(*[STEPS] * 3, ALPHA, mode="RGBA"), {"lossless": True, "exact": True},
               OVER_WHITE),
    "o.tif": (image(*[255 - STEPS] * 3, STEPS * 0, mode="CMYK"), {}, STEPS),
    "p.tif": (image(*[STEPS] * 3, ALPHA, mode="RGBA"), {}, OVER_WHITE),
    "q.png": (image(STEPS > 90), {}, np.where(STEPS > 90, 255, 0))}
PAGES = {"save_all": True, "append_images": [image(STEPS.T)]}
BAD = {  # a file that no fixed rule makes one image of 8 bits
    "r.tif": (image(STEPS.astype(np.float32)), {}, "pixels of the mode F,.*8 or 16 bits"),
    "s.tif": (image(STEPS.astype(np.int32)), {}, "pixels of the mode I,"),
    "t.tif": (image(STEPS), PAGES, "several images"), "u.png": (image(STEPS), PAGES, "several"),
    "v.webp": (image(*[STEPS] * 3, mode="RGB"), PAGES, "several images: save one"),
    "w.tif": (Image.new("LAB", (8, 8)), {}, "pixels of the mode LAB,")}


@pytest.fixture
def kinds(tmp_path):
    (tmp_path / "kinds" / "a").mkdir(parents=True)
    for name, (made, options, _) in SHAPES.items():
        made.save(tmp_path / "kinds" / "a" / name, **options)
    return tmp_path / "kinds"


@pytest.mark.parametrize("channels", [1, 3])
def test_each_kind_of_file_is_read_by_a_fixed_rule(kinds, channels):
    data = load(f"folder:{kinds}", channels=channels)
    for (name, (*_, expected)), x in zip(SHAPES.items(), data.x_train, strict=True):
        for band in range(channels):
            np.testing.assert_array_equal(x[..., band], expected, name)
    assert data.notes[-1] == ("transparent pixels are white, and of a channel of 16 bits the high "
                              "byte counts")


def test_a_channel_of_12_bits_keeps_its_high_8(kinds):
    """As microscopes write it; Pillow does not write such a file."""
    values, place = STEPS.astype(np.uint16).ravel() << 4 | 15, 8 + 2 + 9 * 12 + 4
    pairs = [bytes([a >> 4, (a & 15) << 4 | b >> 8, b & 255])
             for a, b in values.reshape(-1, 2).tolist()]
    tags = {256: 8, 257: 8, 258: 12, 259: 1, 262: 1, 273: place, 277: 1, 278: 8, 279: 96}
    (kinds / "a" / "z.tif").write_bytes(b"II*\0" + struct.pack("<IH", 8, 9) + b"".join(
        struct.pack("<HHII", tag, 3, 1, value) for tag, value in tags.items()) + bytes(4)
        + b"".join(pairs))
    data = load(f"folder:{kinds}", channels=1)
    np.testing.assert_array_equal(data.x_train[-1, ..., 0], STEPS)


def test_transparent_pixels_are_of_the_declared_colour(kinds, many):
    white = load(f"folder:{kinds}", channels=1)
    black = load(f"folder:{kinds}", channels=1, background="black")
    np.testing.assert_array_equal(black.x_train, [
        np.where((white.x_train[i, ..., 0] == 255) & (name[0] in "hijklmnp"), 0,
                 white.x_train[i, ..., 0])[..., None] for i, name in enumerate(SHAPES)])
    assert black.options["background"] == "black" and "pixels are black" in black.notes[-1]
    refused("--background pink: give white or black", load, f"folder:{kinds}", background="pink")


def test_all_that_no_rule_reads_is_named_at_once_and_covered_by_skip_bad(kinds):
    for name, (made, options, match) in BAD.items():
        made.save(kinds / "a" / name, **options)
        refused(f"{name} .*{match}", load, f"folder:{kinds}", channels=1)
    refused(f"^6 of 23 images .*{'.*'.join(BAD)}.*--skip-bad$", load, f"folder:{kinds}", channels=1)
    data = load(f"folder:{kinds}", channels=1, skip_bad=True)
    assert (data.y_train == EMPTY).tolist() == [False] * 17 + [True] * 6
    assert all(name in data.private_notes[0] for name in BAD)


@pytest.mark.parametrize("live", [False, True])
def test_progress_for_many_files_only(root, many, monkeypatch, capsys, live):
    monkeypatch.setattr("sys.stderr.isatty", lambda: live, raising=False)
    load(f"folder:{root}")
    assert f"{COUNT + 4}/{COUNT + 4}" in capsys.readouterr().err
    load(f"folder:{root}")
    files.MANY = 1000
    load(f"folder:{root}", image_size=9)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("spec", ["digits", "glyphs", "npz:x", "idx:x", "cifar10:x", "csv:x"])
def test_options_that_do_not_apply(spec):
    for option in ({"skip_bad": True}, {"attribute": "hair"}):
        refused(r"--(skip-bad|attribute) does not apply", load, spec, **option)
