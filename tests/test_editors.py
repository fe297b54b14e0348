"""The files in ``editors/``: real editors with our settings, what cannot run here at least parsed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from mdh_lift.lsp.settings import settings_from

EDITORS = Path(__file__).parent.parent / "editors"
PROGRAM = """\
/* Größe: 𝟙 */ int one;
void gemm(int n, int m, int p, double A[n][p], double B[p][m], double C[n][m])
{
    /* ü𝟙 */ ;
#pragma mdh combine_ops(i: cc, j: cc, k: pw(*))
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            for (int k = 0; k < p; k++)
                C[i][j] += A[i][k] * B[k][j];
}
"""


def test_neovim(tmp_path):
    """A headless Neovim, set up as docs/editors.md says, with the script ``editor_nvim.lua``."""
    nvim = shutil.which("nvim")
    assert nvim, "neovim is installed by .ci/run"
    configuration = tmp_path / "config" / "nvim"
    shutil.copytree(EDITORS / "nvim" / "lua", configuration / "lua")
    words = ", ".join(f'"{w}"' for w in (sys.executable, "-P", "-m", "mdh_lift", "lsp"))
    (configuration / "init.lua").write_text(
        f'require("mdh_lift").setup({{ cmd = {{ {words} }}, trusted = true }})\nvim.o.swapfile = false\n'
    )
    source = tmp_path / "gemm.c"
    source.write_text(PROGRAM, encoding="utf-8")
    script = Path(__file__).with_name("editor_nvim.lua")
    done = subprocess.run(
        [nvim, "--headless", str(source), "-c", f"luafile {script}"], capture_output=True, text=True, timeout=300,
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path),
             "XDG_DATA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["diagnostics", "edit", "hover", "lens", "action", "completion"], done.stderr
    assert source.read_text(encoding="utf-8") == PROGRAM, "nothing is written"


def test_neovim_settings_for_new_versions():
    """One table; what it tells the server is understood."""
    text = (EDITORS / "nvim" / "lsp" / "mdh_lift.lua").read_text()
    assert re.search(r'cmd = \{ "mdh-lift", "lsp" \}', text)
    (options,) = re.findall(r"init_options = \{ (\w+) = (\w+) \}", text)
    assert settings_from({options[0]: options[1] == "true"})[1] == []


def test_helix():
    settings = tomllib.loads((EDITORS / "helix" / "languages.toml").read_text())
    server = settings["language-server"]["mdh-lift"]
    assert [server["command"], *server["args"]] == ["mdh-lift", "lsp"]
    chosen, wrong = settings_from(server["config"])
    assert not chosen.trusted and not wrong
    (language,) = settings["language"]
    assert language["language-servers"] == ["clangd", "mdh-lift"]


def test_emacs(tmp_path):
    """It compiles without a warning, and what it tells the server is understood."""
    copy = shutil.copy(EDITORS / "emacs" / "mdh-lift.el", tmp_path)
    batch = ["emacs", "-Q", "--batch"]
    strict = ["--eval", "(setq byte-compile-error-on-warn t)", "-f", "batch-byte-compile", str(copy)]
    done = subprocess.run([*batch, *strict], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tell = "(progn (require 'json) (princ (json-encode (mdh-lift-options))))"
    done = subprocess.run([*batch, "-l", str(copy), "--eval", tell], capture_output=True, text=True)
    assert settings_from(json.loads(done.stdout)) == settings_from({"trusted": False}), done.stderr


def test_vscode_settings():
    """What runs is chosen by the user, never by a workspace; without trust, the server is told so."""
    manifest = json.loads((EDITORS / "vscode" / "package.json").read_text())
    properties = manifest["contributes"]["configuration"]["properties"]
    assert properties["mdhLift.path"]["scope"] == "machine"
    trust = manifest["capabilities"]["untrustedWorkspaces"]
    assert trust["supported"] == "limited" and trust["restrictedConfigurations"] == ["mdhLift.path"]
    source = (EDITORS / "vscode" / "src" / "extension.ts").read_text()
    (block,) = re.findall(r"initializationOptions: \{(.*?)\n    \}", source, re.DOTALL)
    names = re.findall(r"(\w+):", block)
    assert "trusted: vscode.workspace.isTrusted" in block
    assert settings_from(dict.fromkeys(names, True))[1] == []
    lock = (EDITORS / "vscode" / "package-lock.json").read_text()
    assert "\"resolved\":" not in lock and "://" not in lock, "no names of hosts"
    assert json.loads(lock)["packages"][""]["devDependencies"] == manifest["devDependencies"]
