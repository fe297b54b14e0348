"""The VS Code extension, type-checked, bundled and packaged from what git knows; it fetches from npm.

    python -m campaigns.vscode
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(ROOT / "LICENSE", directory)
        copy = Path(directory, "editors", "vscode")
        ignored = shutil.ignore_patterns("node_modules", "dist", "LICENSE")
        shutil.copytree(ROOT / "editors" / "vscode", copy, ignore=ignored)
        subprocess.run([copy / "package"], check=True, timeout=900)
        package = copy / "dist" / "mdh-lift.vsix"
        with zipfile.ZipFile(package) as content:
            names = content.namelist()
        missing = {"extension/dist/extension.js", "extension/package.json"} - set(names)
        foreign = [n for n in names if "node_modules" in n or n.endswith(".ts")]
        print(f"{len(names)} files, {package.stat().st_size} bytes")
        print(f"missing: {sorted(missing)}; foreign: {foreign}")
    return 1 if missing or foreign else 0


if __name__ == "__main__":
    sys.exit(main())
