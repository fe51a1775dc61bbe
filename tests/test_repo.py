"""The repository keeps its own rules: sizes, a true map, a sentence at the top of every module, nothing of anybody's machine."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "watchtower").rglob("*.py"))
PYTHON_FILES = [*MODULES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]
MAX_LINES = 400
# Spelt in pieces, so that this file does not find itself.
WORKPLACE = re.compile("/" + r"work/(?:main|shared)|/" + r"home/\w+/|prompt_" + r"\w\.txt")
TEXT_ENDINGS = {".py", ".c", ".md", ".toml", ".sql", ".service", ".yml", ".yaml", ".json", ".cfg", ".txt", ""}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def rooms() -> list[str]:
    entries = (ROOT / "watchtower").iterdir()
    folders = {entry.name for entry in entries if entry.is_dir() and (entry / "__init__.py").exists()}
    files = {entry.name for entry in (ROOT / "watchtower").glob("*.py")} - {"__init__.py", "__main__.py"}
    return sorted({f"{name}/" for name in folders} | files)


def shipped() -> list[Path]:
    """What git knows or would add; where this is not a checkout, what the package holds."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.splitlines() or [named(path) for path in MODULES]
    found = [ROOT / name for name in names]
    return [path for path in found if path.is_file() and path.suffix in TEXT_ENDINGS]


@pytest.mark.parametrize("path", PYTHON_FILES, ids=named)
def test_no_file_is_longer_than_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_every_module_says_what_it_does(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert said, f"{named(path)} has no docstring"
    assert "." in said.splitlines()[0]


@pytest.mark.parametrize("room", rooms())
def test_every_room_is_on_the_map(room: str) -> None:
    assert room in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_no_shipped_file_speaks_of_the_machine_it_was_written_on() -> None:
    speaking = [
        f"{named(path)}:{number}"
        for path in shipped()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if WORKPLACE.search(line)
    ]
    assert speaking == []


@pytest.mark.parametrize("target", ["demo", "test", "check", "format", "bench"])
def test_every_make_target_of_the_readme_and_the_map_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_readme_installs_the_distribution_that_pyproject_names() -> None:
    assert 'name = "watchtower-gpu"' in (ROOT / "pyproject.toml").read_text()
    assert "pip install watchtower-gpu" in (ROOT / "README.md").read_text(encoding="utf-8")
