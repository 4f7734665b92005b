#!/usr/bin/env python
"""Django's command line for LLM-PO."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
    try:
        from llmpo_site.command import django
    except ImportError as error:
        raise SystemExit(
            "Django is not installed in this Python. Run `make demo` once, or `pip install -r "
            "requirements.txt`."
        ) from error
    django(*sys.argv[1:], program="manage.py")


if __name__ == "__main__":
    main()
