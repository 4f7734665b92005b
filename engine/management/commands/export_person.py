"""Write everything that is stored about a person."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.core.serializers.json import DjangoJSONEncoder

from engine.management.lookups import find_user
from engine.selectors.person_data import person_data


class Command(BaseCommand):
    help = "Write everything that is stored about a person as JSON, to answer a request for access."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="the user name")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        data = person_data(find_user(name), complete=True)
        self.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, cls=DjangoJSONEncoder))
