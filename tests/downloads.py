"""Files from pages."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from labeling.exports.files import FORMATS

# What the log notes is given to a POST alone.
BY_POST = {"own_data", "data_of_person", *(each.route for each in FORMATS.values())}


def ask(client: Client, name: str, *args: int, **query: Any) -> HttpResponse:
    """A page or a file by the name of its address, with this query, as a browser asks for it."""
    address = f"{reverse(name, args=args)}?{urlencode(query)}"
    return client.post(address) if name in BY_POST else client.get(address)
