"""Where the files of the application are: in the repository, or in an installed wheel."""

from pathlib import Path

# The folder of the packages.
BASE = Path(__file__).resolve().parent.parent
_INSTALLED = Path(__file__).resolve().parent / "installed"
IS_INSTALLED = _INSTALLED.is_dir()
# The folder of `static`, `templates`, `docs`, `.env.example` and `gunicorn.conf.py`.
RESOURCES = _INSTALLED if IS_INSTALLED else BASE
