"""Report long files and functions of src/; fail above the hard limits.

A file should stay near 300 lines and may not pass 500; a function near 60 and not 80, its docstring not counted.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
FILE_AIM, FILE_LIMIT = 300, 500
FUNCTION_AIM, FUNCTION_LIMIT = 60, 80


def lengths(path: Path) -> Iterator[tuple[str, int, int, int]]:
    """What, lines, aim and limit: the file and each of its functions, docstrings of functions left out."""
    name = path.relative_to(SOURCE.parent).as_posix()
    text = path.read_text(encoding="utf-8")
    yield name, len(text.splitlines()), FILE_AIM, FILE_LIMIT
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _span(node)
            if ast.get_docstring(node) is not None:
                lines -= _span(node.body[0])
            yield f"{name}:{node.lineno} {node.name}", lines, FUNCTION_AIM, FUNCTION_LIMIT


def _span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def main() -> int:
    """Print what is longer than it should be; 1 where something is longer than it may be."""
    failed = False
    for path in sorted(SOURCE.rglob("*.py")):
        for what, lines, aim, limit in lengths(path):
            if lines > limit:
                failed = True
                print(f"{what}: {lines} lines, above the limit of {limit}")
            elif lines > aim:
                print(f"{what}: {lines} lines, aim {aim}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
