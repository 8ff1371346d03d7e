"""A figure with its title and caption, and how it is written into files."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from analysis import alternative
from testbed.basics.errors import InputError

_NOT_IN_FILES = {"Date": None}
"""Leaves the date out, so the same runs give the same file."""


@dataclass(frozen=True)
class Plot:
    """A figure with its title and its caption.

    Attributes:
        name: the name of its files, without an ending.
        title: one line.
        caption: how to read it, in plain text.
        shows: what it shows, in words; empty if `alternative.of_axes` finds enough.
        narrow: the same for a telephone; None if the figure is narrow enough.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    shows: str = ""
    narrow: Figure | None = None

    @property
    def alternative(self) -> str:
        """The text for whoever doesn't see the figure."""
        return f"{self.title}. {self.shows or alternative.of_axes(self.figure)}".strip()

    def narrow_svg(self) -> bytes | None:
        """The narrow figure as SVG, if there is one."""
        if self.narrow is None:
            return None
        file = BytesIO()
        self.narrow.savefig(file, format="svg", metadata=_NOT_IN_FILES)
        return file.getvalue()

    def save(self, folder: Path) -> list[Path]:
        """Write the figure as PNG and as SVG, and return both files.

        Raises:
            InputError: the folder can't be written.
        """
        png, svg = folder / f"{self.name}.png", folder / f"{self.name}.svg"
        try:
            png.write_bytes(_png(self.figure))
            self.figure.savefig(svg, metadata=_NOT_IN_FILES)
        except OSError as error:
            raise InputError(f"{folder}: {error.strerror}: needed for figures") from error
        return [png, svg]

    def save_as(self, file: Path) -> None:
        """Write the figure into one file; the ending decides the format.

        Raises:
            InputError: it can't be written, or ends neither in .svg nor in .png.
        """
        try:
            if file.suffix == ".svg":
                self.figure.savefig(file, metadata=_NOT_IN_FILES)
            elif file.suffix == ".png":
                file.write_bytes(_png(self.figure))
            else:
                raise InputError(f"{file}: figures are .svg or .png: end its name so")
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}: needed for a figure") from error


def _png(figure: Figure) -> bytes:
    """A PNG with a palette: lines and letters need at most 256 colours, and so half the bytes."""
    full, file = BytesIO(), BytesIO()
    figure.savefig(full, format="png")
    with Image.open(full) as image:
        image.convert("RGB").quantize(dither=Image.Dither.NONE).save(file, "PNG")
    return file.getvalue()
