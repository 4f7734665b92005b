import subprocess
import sys

import pytest


@pytest.mark.slow
def test_importing_the_core_loads_neither_the_web_nor_the_slow() -> None:
    """Importing engine.core must stay cheap and free of the application around it."""
    program = "import sys, engine.core; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "scipy" in loaded
    # scipy.stats takes two thirds of a second, which every process would pay at its start.
    assert {"django", "celery", "vllm", "cvxpy", "scipy.stats"}.isdisjoint(loaded)
