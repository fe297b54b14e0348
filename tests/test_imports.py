"""Which way imports point (reference/style.md): nothing upward, nothing sideways, one door per library."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {"mdh_core": set(), "lifter": {"mdh_core"}, "lowering": {"mdh_core"}}
MAY_IMPORT |= {"emit": {"lowering", "mdh_core"}, "tuning": {"emit", "lowering", "mdh_core"}}
MAY_IMPORT |= {"frontend_c": {"lifter", "mdh_core"}, "frontend_py": {"lifter", "mdh_core"}}
MAY_IMPORT |= {"certify": {"lifter", "lowering", "mdh_core"}}  # for what it certifies: DATA
MAY_IMPORT |= {"mdh_lift": set(MAY_IMPORT)}

# all that the certificate knows of what it certifies: their data types
DATA = {
    "lifter.loop_nest": {"Loop", "LoopNest", "NestStmt"},
    "lowering.host_tiles": {"HostTiles"},
    "lowering.keyed": {"Keyed"},
    "lowering.loops": {"Loop"},
    "lowering.lower": {"Lowered", "Nest", "HistogramNest", "ScanNest", "Stage"},
    "lowering.packs": {"Pack"},
}

# third-party library -> the one module that may import it ("package.?": any, but only one, of the package;
# several modules are several doors)
DOORS = {
    "islpy": "lifter.polyhedral certify.sets",  # the certificate does not ask the lifter's sets
    "pycparser": "frontend_c.?",
    "jinja2": "emit.frames",
    "kernel_tuner": "tuning.search",
    "lsprotocol": "mdh_lift.lsp.server",
    "pygls": "mdh_lift.lsp.server mdh_lift.lsp",  # the latter asks whether it is there
}
# small libraries without terms of their own: packages that may import them
SHARED = {
    "numpy": {"mdh_lift", "tuning"},
    "click": {"mdh_lift"},
    "rich": {"mdh_lift"},
    "msgspec": {"mdh_lift", "tuning"},
    "platformdirs": {"mdh_lift", "tuning"},
    "filelock": {"mdh_lift", "tuning"},
    "archspec": {"lowering", "tuning"},
    "psutil": {"lowering", "tuning", "mdh_lift"},
}


def modules() -> list[Path]:
    return sorted(p for package in MAY_IMPORT for p in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Names of all modules that a file imports, inside functions as well."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield str(node.module)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_down(path):
    package = name_of(path).partition(".")[0]
    for imported in {name.partition(".")[0] for name in imports(path)} - {package}:
        if imported in MAY_IMPORT:
            assert imported in MAY_IMPORT[package], f"{name_of(path)} imports {imported}"


@pytest.mark.parametrize("path", sorted((ROOT / "certify").glob("*.py")), ids=name_of)
def test_the_certificate_is_independent(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = {alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
        if isinstance(node, ast.Import):
            assert not {name.partition(".")[0] for name in names} & {"lifter", "lowering"}, path
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith(("lifter", "lowering")):
            assert names <= DATA.get(str(node.module), set()), f"{path}: {node.module}: {names}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_libraries_have_one_door(path):
    module = name_of(path)
    package = module.partition(".")[0]
    for imported in {name.partition(".")[0] for name in imports(path)}:
        if imported in sys.stdlib_module_names or imported in MAY_IMPORT:
            continue
        if imported in SHARED:
            assert package in SHARED[imported], f"{module} imports {imported}"
            continue
        assert imported in DOORS, f"{module} imports {imported}, which has no door"
        assert {module, f"{package}.?"} & set(DOORS[imported].split()), (
            f"{module}: the door of {imported} is {DOORS[imported]}"
        )


@pytest.mark.parametrize("library", [name for name, door in DOORS.items() if door.endswith(".?")])
def test_some_doors_are_a_single_module(library):
    importers = {name_of(p) for p in modules() if library in {name.partition(".")[0] for name in imports(p)}}
    assert len(importers) <= 1, importers


@pytest.mark.parametrize("package", sorted(set(MAY_IMPORT) - {"mdh_lift"}))
def test_package_fronts_import_nothing(package):
    assert not list(imports(ROOT / package / "__init__.py"))
