"""Make the demo's logins and experiments, once."""

import json
import secrets
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import transaction

from engine.models import User
from engine.selectors.accounts import account
from engine.selectors.experiments import made_by
from engine.services.accounts import make_account
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.people import add_member
from labeling.demo import human_spec, rule_spec

LOGINS = settings.VAR_DIR / "demo-logins.json"


def passwords() -> dict[str, str | None]:
    """By login; ``None`` where it was changed, or the file with the first one was lost."""
    return {
        name: password if (user := account(name)) and user.check_password(password) else None
        for name, password in json.loads(LOGINS.read_text()).items()
    }


class Command(BaseCommand):
    help = "Seed the demo: two logins and two running experiments. Existing ones stay as they are."

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        logins = self._logins()
        users = {name: self._user(name, password) for name, password in logins.items()}
        for spec in (human_spec(), rule_spec()):
            if made_by(None, spec.name) is not None:
                continue
            experiment = create_experiment(spec=spec)
            for role, user in (("annotator", users["annotator"]), ("owner", users["admin"])):
                add_member(experiment=experiment, user=user, role=role, by=None)
            start(experiment_id=experiment.pk)
            self.stdout.write(f"Created experiment {experiment.pk}: {spec.name}")

    def _logins(self) -> dict[str, str]:
        """Random, since a fixed password of an admin is an open door wherever the demo is put online."""
        if LOGINS.exists():
            stored: dict[str, str] = json.loads(LOGINS.read_text())
            return stored
        logins = {name: secrets.token_urlsafe(9) for name in ("annotator", "admin")}
        LOGINS.touch(mode=0o600)
        LOGINS.write_text(json.dumps(logins))
        return logins

    def _user(self, name: str, password: str) -> User:
        return account(name) or make_account(username=name, password=password, superuser=name == "admin")
