"""The distribution llmpo-core: built as released, used where there is nothing but numpy and scipy."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path

import pytest

from engine import core

ROOT = Path(__file__).resolve().parents[2]
# No index and no folder of packages: what is not in the bare environment cannot be had.
ENVIRONMENT = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}

pytestmark = pytest.mark.slow


def run(*command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the repository's files, since building leaves files of its own beside them."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "packaging", tree / "packaging", symlinks=True)
    shutil.copytree(ROOT / "engine/core", tree / "engine/core", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "LICENSE", tree)
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", out]
    run(sys.executable, "-m", "pip", "wheel", *options, tree / "packaging/llmpo-core")
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a virtual environment with numpy, scipy and the wheel.

    pip has to find there all that the wheel requires.
    """
    folder = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    [packages] = folder.glob("lib/python*/site-packages")
    for name in ("numpy", "scipy"):
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files or ()} - {".."}:
            (packages / top).symlink_to(Path(str(installed.locate_file(top))))
    python = folder / "bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", wheel)
    return python


def test_the_wheel_holds_the_core_and_requires_numpy_and_scipy_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        metadata = HeaderParser().parsestr(archive.read(f"{info}/METADATA").decode())
    assert (metadata["Name"], metadata["Version"]) == ("llmpo-core", core.__version__)
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(re.split(r"[^\w-]", line)[0] for line in required) == ["numpy", "scipy"]
    sources = {f"llmpo_core/{path.name}" for path in (ROOT / "engine/core").glob("*.py")}
    assert names >= sources | {"llmpo_core/py.typed", f"{info}/licenses/LICENSE"}
    assert {name.partition("/")[0] for name in names} == {"llmpo_core", info}


EVERY_MODULE = """
import importlib, json, pkgutil, sys
import llmpo_core
missing = {}
for module in pkgutil.iter_modules(llmpo_core.__path__, "llmpo_core."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        missing[module.name] = error.name
absent = []
for name in ("django", "cvxpy", "engine"):
    try:
        importlib.import_module(name)
    except ImportError:
        absent.append(name)
print(json.dumps([missing, absent]))
"""


def test_every_module_but_the_reference_solver_is_imported_there(bare: Path) -> None:
    missing, absent = json.loads(run(bare, "-I", "-c", EVERY_MODULE).stdout)
    assert absent == ["django", "cvxpy", "engine"]
    assert missing == {"llmpo_core.semidefinite": "cvxpy"}


def test_the_program_in_its_readme_runs_as_typed_to_a_decision(bare: Path) -> None:
    readme = (ROOT / "packaging/llmpo-core/README.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    out = run(bare, "-I", "-c", program).stdout
    assert re.match(r"<Decision, claim 'best': \d+ compared, stopped \(certified\), policy \d is named>", out)


PICKLED = """
import pickle
from llmpo_core import Design, Factorial, Unstructured

def tell(design, n):
    for _ in range(n):
        i, j = design.ask()
        design.tell(i, j, float(i < j))

factorial = Factorial({"tone": ["terse", "warm"], "length": [1, 2, 3]}, numeric=["length"])
for space in (Unstructured(4), factorial):
    for sampler in ("balanced", "tracking", "thompson"):
        design = Design(space, sampler=sampler, seed=3)
        tell(design, 15)
        copy = pickle.loads(pickle.dumps(design))
        assert repr(copy) == repr(design)
        tell(design, 15)
        tell(copy, 15)
        assert copy.decision == design.decision and copy.ask(5) == design.ask(5)
print(pickle.loads(pickle.dumps(design.decision)))
"""


def test_designs_and_decisions_pickle_there_and_go_on_as_before(bare: Path) -> None:
    assert run(bare, "-I", "-c", PICKLED).stdout.startswith("<Decision, claim 'best': 30 compared")


REFERENCE = """
import numpy as np
from llmpo_core.maxmin import maxmin_allocation

rng = np.random.default_rng(0)
print(maxmin_allocation(rng.standard_normal((9, 3)), rng.standard_normal(3), {arguments}))
"""


@pytest.mark.parametrize(
    ("arguments", "error"), [("solver='cvxpy'", "ImportError"), ("tolerance=1e-16", "ArithmeticError")]
)
def test_the_missing_reference_solver_is_an_error_that_says_how_to_get_it(
    bare: Path, arguments: str, error: str
) -> None:
    done = run(bare, "-I", "-c", REFERENCE.format(arguments=arguments), check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{error}: ")
    assert last.endswith("CVXPY, which is not installed: pip install llmpo-core[reference]")
