"""The environment of the test run, set before Django reads its settings (loaded by pytest's ``-p``)."""

import os
import tempfile

os.environ.setdefault("SECRET_KEY", "only-for-tests-only-for-tests-only-for-tests")
os.environ.setdefault("VAR_DIR", tempfile.mkdtemp(prefix="llmpo-tests-"))
os.environ.setdefault("DEBUG", "true")
os.environ.setdefault("LOG_LEVEL", "WARNING")
