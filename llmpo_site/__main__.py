"""``python -m llmpo_site``: the command ``llmpo``."""

from llmpo_site.command import main

main()
