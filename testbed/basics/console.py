"""Plain lines on a terminal."""

from rich.console import Console


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: without markup, highlighting or line breaks."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
