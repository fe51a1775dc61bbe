"""Turns TOML tables into frozen structs and goes on after each mistake, so that one look shows them all. Knows no setting by name, and opens no file."""

import difflib
import math
import os
import re
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class Reader:
    """Reads the tables of one file.

    Keys that end in `_file`, `_files` or `directory` are paths: relative ones start at the file's own folder, and
    `${CREDENTIALS_DIRECTORY}` and the like are filled in from the environment, as systemd sets them. A bare name that is
    one of the credentials that systemd hands to this process means that one.

    Args:
        folder: where relative paths start.
        root: the struct of the whole file, to say where a misplaced key belongs.
        moved: what is a struct's field and said elsewhere: struct -> field -> where.
    """

    def __init__(self, folder: Path, root: type[msgspec.Struct], moved: dict[type, dict[str, str]]) -> None:
        self._folder = folder
        self._moved = moved
        self._root = root
        self.mistakes: list[str] = []
        self.broken: set[str] = set()
        """Paths of keys and tables that hold a default, or are left out, because of a mistake."""
        self.numbers: dict[str, list[int]] = {}
        """Path of a list of tables -> which of its tables were read."""

    def table(self, given: Any, kind: type[msgspec.Struct], path: str) -> msgspec.Struct | None:
        """Read one table.

        Returns:
            The struct, with the default for each key that is a mistake; None when a needed key is missing or wrong.
        """
        if not isinstance(given, dict):
            self.wrong(path, f"must be a table, got {_said(given)}")
            return None
        moved = self._moved.get(kind, {})
        types = {name: hint for name, hint in get_type_hints(kind).items() if name not in moved}
        values: dict[str, Any] = {}
        for key, value in given.items():
            at = _join(path, key)
            if key in types:
                found = self._value(value, types[key], at, key)
                if found is not None:
                    values[key] = found
            elif key in moved:
                self.wrong(at, moved[key])
            else:
                self.wrong(at, f"unknown key{self._suggestion(key, types)}")
        needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
        for name in needed:
            if name not in given:
                self.wrong(_join(path, name), "is missing")
        return self._built(kind, values, path) if all(name in values for name in needed) else None

    def wrong(self, at: str, what: str) -> None:
        """Note one mistake."""
        self.broken.add(at)
        self.mistakes.append(f"{at}: {what}")

    def _built(self, kind: type[msgspec.Struct], values: dict[str, Any], path: str) -> msgspec.Struct | None:
        """The struct, without the keys that its own checks name; a complaint about a key that is gone already is no news."""
        while True:
            try:
                return kind(**values)
            except ValueError as error:
                names = {name for name in kind.__struct_fields__ if re.search(rf"\b{name}\b", str(error))}
                if not any(_join(path, name) in self.broken for name in names):
                    self.wrong(path or "top level", str(error))
                self.broken.update(_join(path, name) for name in names)
                rest = {name: value for name, value in values.items() if name not in names}
                if len(rest) == len(values):
                    return None
                values = rest
            except TypeError:  # a needed key was among them
                return None

    def _value(self, given: Any, hint: Any, at: str, key: str) -> Any:
        """The value, or None after a mistake (TOML has no null)."""
        if get_origin(hint) in {Union, UnionType}:
            hint = next(kind for kind in get_args(hint) if kind is not NoneType)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self.table(given, hint, at)
        inner = get_args(hint)[0] if get_origin(hint) is tuple else None
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            return self._tables(given, inner, at)
        try:
            if key.endswith(("_file", "_files", "directory")):
                given = self._paths(given)
            return _leaf(given, hint)
        except ValueError as error:
            self.wrong(at, str(error))
            return None

    def _tables(self, given: Any, kind: type[msgspec.Struct], at: str) -> tuple[msgspec.Struct, ...] | None:
        if not isinstance(given, list):
            self.wrong(at, f"must be a list of tables, written [[{at}]]")
            return None
        read = {number: self.table(one, kind, f"{at}[{number}]") for number, one in enumerate(given)}
        self.broken.update(f"{at}[{number}]" for number, one in read.items() if one is None)
        self.numbers[at] = [number for number, one in read.items() if one is not None]
        return tuple(one for one in read.values() if one is not None)

    def _paths(self, given: Any) -> Any:
        if isinstance(given, list):
            return [self._paths(one) for one in given]
        if not isinstance(given, str) or not given:
            raise ValueError(f"must be a path in quotes, got {_said(given)}")
        for name in _VARIABLE.findall(given):
            if name not in os.environ:
                raise ValueError(
                    f"${{{name}}} is not set in the environment (systemd sets it for its services)"
                )
        credential = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nowhere"), given)
        if "/" not in given and credential.is_file():
            return str(credential)
        return str(self._folder / _VARIABLE.sub(lambda found: os.environ[found[1]], given))

    def _suggestion(self, key: str, known: dict[str, Any]) -> str:
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
        if close:
            return f"; did you mean `{close[0]}`?"
        for section, hint in get_type_hints(self._root).items():
            kinds = [hint, *get_args(hint)]
            if any(
                isinstance(kind, type) and key in getattr(kind, "__struct_fields__", ()) for kind in kinds
            ):
                return f"; it belongs in [{section}]"
        return ""


def _leaf(given: Any, hint: Any) -> Any:
    if isinstance(given, float) and not math.isfinite(given):
        raise ValueError(f"must be a number, got {given}")
    if isinstance(hint, type) and issubclass(hint, StrEnum) and given not in list(hint):
        raise ValueError(f"must be one of {', '.join(hint)}; got {_said(given)}")
    try:
        return msgspec.convert(given, hint, dec_hook=lambda kind, value: kind(value))
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        for theirs, ours in _WORDS:
            what = what.replace(theirs, ours)
        raise ValueError(f"{where.rstrip('`')}: {what}".removeprefix(": ")) from None


_WORDS = (
    ("Expected", "must be"),
    ("`", ""),
    ("str", "text"),
    ("float", "a number"),
    ("int", "a whole number"),
    ("bool", "true or false"),
    ("array", "a list"),
)


def _said(given: Any) -> str:
    if isinstance(given, (list, dict)):
        return "a list" if isinstance(given, list) else "a table"
    return repr(given)[:60]


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
