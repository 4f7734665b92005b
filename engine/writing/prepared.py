"""A writer for demonstrations: it proposes texts that were prepared in a file, and reads nothing."""

from pathlib import Path

import yaml

from engine.domain.proposals import Brief
from engine.writing.base import Ask, ExhaustedError, Written

_FILE = Path(__file__).with_name("prepared.yaml")


class PreparedWriter:
    """Proposes the texts of ``prepared.yaml`` in their order, each once."""

    def __init__(self, _ask: Ask) -> None:
        self._texts = [Written(each["text"], each["reason"]) for each in yaml.safe_load(_FILE.read_text())]

    def write(self, brief: Brief, n: int) -> list[Written]:
        """See :class:`~engine.writing.base.Writer`."""
        known = {brief.champion, *(each.text for each in brief.tried)}
        left = [each for each in self._texts if each.text not in known]
        if not left:
            raise ExhaustedError("All prepared texts have been proposed.")
        return left[:n]
