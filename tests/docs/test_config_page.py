"""docs/config.md names every key there is, with its default, and no other."""

import re
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec

from watchtower.config import Config

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| `([a-z_.]+)` \| (.+?) \|", re.MULTILINE)


def documented() -> dict[str, str]:
    return dict(_ROW.findall((ROOT / "docs" / "config.md").read_text()))


def _struct(hint: object) -> type[msgspec.Struct] | None:
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return kind
    return None


def existing() -> dict[str, object]:
    """Key -> default, msgspec.NODEFAULT where there is none."""
    keys: dict[str, object] = {}
    for section, hint in get_type_hints(Config).items():
        kind = _struct(hint)
        if kind is None:
            keys[section] = getattr(Config(), section)
            continue
        for field in msgspec.structs.fields(kind):
            keys[f"{section}.{field.name}"] = field.default
    del keys["alerts.instance"]  # said at the top
    return keys


def test_every_key_is_on_the_page_and_no_other() -> None:
    assert set(documented()) == set(existing())


def test_every_default_on_the_page_is_the_real_one() -> None:
    page = documented()
    for key, default in existing().items():
        if key == "alerts.routes":
            continue
        if default is msgspec.NODEFAULT:
            assert page[key] == "*needed*", key
        elif default is None:
            assert page[key] == "none", key
        elif isinstance(default, bool):
            assert page[key] == f"`{str(default).lower()}`", key
        elif isinstance(default, (str, Path)):
            assert page[key] == f'`"{default}"`', key
        elif default == ():
            assert page[key] == "`[]`", key
        else:
            assert float(page[key].strip("`")) == default, key
