"""The environment of the test run, set before Django reads its settings (loaded by pytest's ``-p``).

Each process of a parallel run has a broker and a folder of its own, so that no worker of one test takes
another's messages.
"""

import gc
import os
import sys
import tempfile

# Containers often forbid Python to keep compiled files. Each of the many processes that the tests start would
# then compile the whole program anew, and pytest every test.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Nothing that is imported or collected is garbage: looking for it is a sixth of that time. tests/conftest.py
# goes on with it when the tests begin.
gc.disable()

os.environ.setdefault("SECRET_KEY", "only-for-tests-only-for-tests-only-for-tests")
os.environ.setdefault("DEBUG", "true")
os.environ.setdefault("LOG_LEVEL", "WARNING")
# Experiments may have a language model as a judge; what it says is each test's own (tests.opinions).
os.environ["JUDGE_BACKEND"], os.environ["JUDGE_MODEL"] = "vllm", "scripted-1"
# A page that is looked at right after a click must show it.
os.environ["DASHBOARD_SECONDS"] = "0"
os.environ["VAR_DIR"] = tempfile.mkdtemp(prefix="llmpo-tests-")

_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
if (_broker := os.environ.get("CELERY_BROKER_URL", "")).startswith("redis://"):
    os.environ["CELERY_BROKER_URL"] = f"{_broker.rsplit('/', 1)[0]}/{_process + 1}"
