"""What a command makes of a page is between two lines of that page, and the rest of it is written by hand."""

from __future__ import annotations


def between_markers(page: str, text: str, name: str) -> str:
    """`page` with `text` in place of what is between the two markers of this name.

    ValueError: the page does not have exactly one of each, in this order.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page needs one line `{begin}` and after it one `{end}`")
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"
