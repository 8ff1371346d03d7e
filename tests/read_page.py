"""Pages of HTML, read for tests."""

from html.parser import HTMLParser

WITHOUT_END = ("meta", "link", "img", "input", "source")


class Page(HTMLParser):
    """The parts of a page that tests look at; its elements end in reverse order.

    Attributes:
        open: the elements that haven't ended.
        addresses: all that it refers to.
        words: its text, with a line break after each element.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.alternatives: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in WITHOUT_END:
            self.open.append(tag)
        named = {name: value or "" for name, value in attributes}
        self.addresses += [named[name] for name in ("src", "href", "srcset") if name in named]
        if tag == "img":
            self.alternatives.append(named.get("alt", ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.words += "\n"

    def handle_data(self, text: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words += text.replace("\N{NO-BREAK SPACE}", " ")
