"""A figure with its words, and how it gets into files; what is drawn is said elsewhere."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from testbed.errors import InputError

_NOT_IN_FILES = {"Date": None}
"""So that the same runs give the same file."""


@dataclass(frozen=True)
class Drawing:
    """A figure and what a reader is told of it.

    Attributes:
        name: of its files, without an ending.
        title: a line.
        caption: how to read it; plain text.
    """

    name: str
    title: str
    caption: str
    figure: Figure

    def save(self, folder: Path) -> list[Path]:
        """Write the figure as PNG and as SVG; returns both files.

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
        """Write the figure into one file, of the kind that its ending says.

        Raises:
            InputError: it can't be written, or ends neither in .svg nor in .png.
        """
        try:
            if file.suffix == ".svg":
                self.figure.savefig(file, metadata=_NOT_IN_FILES)
            elif file.suffix == ".png":
                file.write_bytes(_png(self.figure))
            else:
                raise InputError(f"{file}: figures are .svg or .png: name it so")
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}: needed for a figure") from error


def _png(figure: Figure) -> bytes:
    """With a palette: lines and letters need no more than 256 colours, and half the bytes."""
    drawn, file = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png")
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(dither=Image.Dither.NONE).save(file, "PNG")
    return file.getvalue()
