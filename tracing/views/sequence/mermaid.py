"""A sequence diagram for Markdown: mermaid's `sequenceDiagram`.

In mermaid a line end or a `;` ends a statement, and `#` begins a character code. So names and texts are escaped, and a
participant's id is a plain word that is not one of mermaid's own.
"""

from __future__ import annotations

from tracing.views.sequence.rows import Arrow, Note, Sequence

SPECIAL = "#;<>&%"
LONGEST = 120  # characters of a note: mermaid does not wrap lines


def diagram(sequence: Sequence) -> str:
    """The whole diagram, to go between ```mermaid and ```: one statement per line."""
    lines = ["sequenceDiagram", f"    title {escape(sequence.title)}"]
    ids = {column: f"P{number}" for number, column in enumerate(sequence.columns)}
    lines += [f"    participant {ids[column]} as {escape(column)}" for column in sequence.columns]
    lines += [f"    {_statement(sequence, row, ids)}" for row in sequence.rows]
    if sequence.left_out:
        lines.append(f"    note over {ids[sequence.columns[0]]}: {escape(sequence.left_out)}")
    return "\n".join(lines) + "\n"


def _statement(sequence: Sequence, row: Arrow | Note, ids: dict[str, str]) -> str:
    if isinstance(row, Note):
        return f"note over {ids[row.column]}: {escape(row.words.text())}"
    line = "->>" if row.taken else "--x"
    return f"{ids[row.source]}{line}{ids[row.target]}: {escape(f'{row.label} ({sequence.delivery_in_words(row)})')}"


def escape(text: str) -> str:
    """In one line, with nothing in it that means something to mermaid or to the page around it."""
    line = " ".join(text.split())
    line = line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
    return "".join(f"#{ord(each)};" if each in SPECIAL else each for each in line)
