"""Markdown headings with their place in the text, as CommonMark defines them; markdown-it reads the blocks."""

__all__ = ["Heading", "heading_text", "markdown_headings"]

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_LINE_END = re.compile(r"\r\n?|\n")
_MARK = re.compile(r" {0,3}(?:#{1,6}(?:[ \t]|$)|(?:=+|-+)[ \t]*$)")
_FRONT_MATTER = re.compile(r"\s*---[ \t]*[\r\n]+[\w-]+:(?s:.*?)[\r\n]---[ \t]*(?:[\r\n]|$)")


class Heading(NamedTuple):
    """A heading's first and last character (exclusive), marks and underline included, and its level."""

    start: int
    end: int
    level: int


def markdown_headings(text: str, begin: int = 0) -> list[Heading]:
    """Return the ATX and Setext headings of a text from a character on; those in lists, quotes and code are none.

    A front matter, lines of `key: value` between two lines `---` at the very beginning, is left out.
    """
    if not any(map(_MARK.match, text[begin:].splitlines())):  # what reads the blocks is slow
        return []
    front = _FRONT_MATTER.match(text, begin)
    skipped = front.end() if front else begin
    body = text[skipped:]
    lines = [0, *(m.end() for m in _LINE_END.finditer(body)), len(body)]
    found: list[Heading] = []
    for token in _parser().parse(body):
        if token.type == "heading_open" and token.level == 0 and token.map is not None:
            top, bottom = lines[token.map[0]], lines[token.map[1]]
            block = body[top:bottom]
            start = skipped + top + len(block) - len(block.lstrip())
            found.append(Heading(start, skipped + top + len(block.rstrip()), int(token.tag[1:])))
    return found


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    blocks = ["blockquote", "code", "fence", "heading", "hr", "html_block", "lheading", "list", "reference"]
    parser = MarkdownIt("zero", {"html": True}).enable(blocks)
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def heading_text(block: str, level: int) -> str:
    """Return what a heading says, on one line: without ATX marks or Setext underline; a title (level 0) is left."""
    if level and block.startswith("#"):
        block = block.lstrip("#").rstrip()
        unclosed = block.rstrip("#")
        if not unclosed or unclosed[-1] in " \t":
            block = unclosed
    elif level:
        block = "".join(block.splitlines(keepends=True)[:-1])
    return " ".join(block.split())
