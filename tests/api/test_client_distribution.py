"""The distribution llmpo-client: built as released, used without the rest of the repository."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import llmpo_client

ROOT = Path(__file__).resolve().parents[2]
USED = """
import sys
sys.path.insert(0, sys.argv[1])
import llmpo_client
assert llmpo_client.__file__.startswith(sys.argv[1]), llmpo_client.__file__
assert not {"django", "engine", "numpy"} & set(sys.modules)
print(llmpo_client.__version__)
"""


@pytest.mark.slow
def test_the_wheel_holds_the_client_and_nothing_else(tmp_path):
    # From a copy, since building leaves files of its own beside the sources.
    tree, out = tmp_path / "tree", tmp_path / "wheel"
    shutil.copytree(ROOT / "packaging", tree / "packaging", symlinks=True)
    shutil.copytree(
        ROOT / "llmpo_client", tree / "llmpo_client", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "LICENSE", tree)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, tree / "packaging/llmpo-client"], check=True
    )
    [wheel] = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    sources = {f"llmpo_client/{path.name}" for path in (ROOT / "llmpo_client").glob("*.py")}
    assert names >= sources | {"llmpo_client/py.typed"}
    assert {name.partition("/")[0] for name in names} == {
        "llmpo_client",
        f"llmpo_client-{llmpo_client.__version__}.dist-info",
    }
    said = subprocess.run(
        [sys.executable, "-c", USED, wheel], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == llmpo_client.__version__
