"""The settings as the type checker reads them: with a key, so that it needs no environment of its own."""

import os

os.environ.setdefault("SECRET_KEY", "only-for-types-only-for-types-only-for-types")

from llmpo_site.settings import *  # noqa: F403 - the key must be there first
