"""What recordings and archived tables depend on besides the case: the versions and the harness's own code."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def versions() -> dict[str, str]:
    """The versions of Spark and Delta."""
    return {name: _version(name) for name in ("pyspark", "delta-spark")}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # other combinations of Spark and Delta run with Delta's jars alone
        return "none"


@cache
def code_of(*files: str) -> str:
    """A digest of the files' code: docstrings, comments and blank lines do not count."""
    digest = hashlib.sha256()
    for file in files:
        source = Path(file).read_text("utf-8")
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                docstring = node.body[0]
                assert docstring.end_lineno is not None
                lines[docstring.lineno - 1 : docstring.end_lineno] = [""] * (
                    docstring.end_lineno - docstring.lineno + 1
                )
        kept = [line.rstrip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        digest.update("\n".join(kept).encode())
    return digest.hexdigest()
