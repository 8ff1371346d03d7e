"""Pages in headless Chromium, for tests; nothing can leave this machine."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

CHROMIUM = shutil.which("chromium")
"""Debian's package of that name; only .ci/run installs it."""

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed: apt-get install chromium"
)

_DARK = "--blink-settings=preferredColorScheme=0"

_FRAME = """<!DOCTYPE html><title></title>
<script>onmessage = (message) => {{ document.title = message.data; }};</script>
<iframe src="{address}" style="width: {width}px; height: 800px; border: 0"></iframe>
"""
"""A window of headless Chromium has at least 500 points, a frame within it any width."""


def in_browser(file: Path, profile: Path, *options: str) -> tuple[str, list[str]]:
    """The page as headless Chromium ends with it, and the messages on its console.

    Names can't be resolved there.
    """
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *("--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND"),
        *(f"--user-data-dir={profile}", "--enable-logging=stderr", *options),
        *("--dump-dom", file.as_uri()),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return answer.stdout, list(_console(answer.stderr))


def _console(log: str) -> Iterator[str]:
    return (found[1] for found in re.finditer(r":CONSOLE(?::\d+|\(\d+\))\] (.*)", log))


def with_script(page: Path, script: str, copy: Path) -> Path:
    """A copy of a page that may carry out this script, and does so at its end."""
    text = page.read_text(encoding="utf-8")
    text = text.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'")
    copy.write_text(text.replace("</body>", f"{script}</body>"), encoding="utf-8")
    return copy


def measured(
    page: Path, expression: str, folder: Path, *, width: int = 1000, dark: bool = False
) -> dict[str, Any]:
    """The object that a JavaScript expression is in a page of this width, after loading."""
    answer = f"parent.postMessage(encodeURIComponent(JSON.stringify({expression})), '*')"
    copy = with_script(
        page, f"<script>onload = () => {{ {answer}; }};</script>", folder / "measured.html"
    )
    frame = folder / "frame.html"
    frame.write_text(_FRAME.format(address=copy.as_uri(), width=width), encoding="utf-8")
    dom, messages = in_browser(frame, folder / "profile", *([_DARK] if dark else []))
    assert messages == []
    found = re.search(r"<title>(.+)</title>", dom)
    assert found, dom[:999]
    values: dict[str, Any] = json.loads(unquote(found[1]))
    return values
