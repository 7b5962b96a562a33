"""The form that image files are brought to, and what of it is read from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from dpgen_jax.data.base import Background, Resize, Uncovered

STRETCHED = "every image is stretched to a square: nothing is cropped, and proportions change"


@dataclasses.dataclass(frozen=True)
class Form:
    """The form that image files are brought to.

    Attributes:
        channels: 1 or 3, to which images are converted; None for 1 if all files are gray, else 3,
            which is then `uncovered`.
        image_size: Pixels on a side of the square that each is made; None if all share one shape,
            which is then `uncovered`.
        skip_bad: Makes files that cannot be used as images empty slots, and leaves them out of the
            test part; `private_notes` lists them.
        resize: How images are made squares; by default the centre is cropped.
        background: The colour that transparent pixels show; white by default.
    """

    channels: int | None
    image_size: int | None
    skip_bad: bool = False
    resize: Resize | None = None
    background: Background | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Public lines on how files become images, whatever is in them."""
        return (*[STRETCHED] * (self.resize == "stretch"),
                f"transparent pixels are {self.background or 'white'}, and of a channel of 16 bits "
                "the high byte counts")

    def undeclared(self, shape: tuple[int, ...]) -> Iterator[Uncovered]:
        """Yields the parts of the shape [H, W, ch] that are not declared."""
        height, width, actual = shape
        if self.channels is None:
            yield Uncovered(f"the number of channels, {actual}, is read from the files",
                            f"--channels {actual}")
        if self.image_size is None:
            yield Uncovered(f"the height and width, {height} x {width}, are read from the "
                            "files", f"--image-size {min(height, width)}")
