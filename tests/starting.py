"""The settings of a process that starts with certain environment variables."""

import os
import runpy
from pathlib import Path
from typing import Any
from unittest.mock import patch

from django.conf import settings

_FILE = Path(settings.BASE_DIR) / "llmpo_site" / "settings.py"


def settings_with(**variables: str) -> dict[str, Any]:
    """All that ``llmpo_site/settings.py`` sets where these are the variables, besides those that it needs.

    It runs in this process, but in a module of its own. A start ends with the exception that this raises.
    """
    needed = {"SECRET_KEY": "only-for-tests-only-for-tests-only-for-tests", "VAR_DIR": os.environ["VAR_DIR"]}
    with patch.dict(os.environ, needed | variables, clear=True):
        return runpy.run_path(str(_FILE))
