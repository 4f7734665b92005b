"""The demo on this machine: an installation with two logins and two experiments."""

from django.conf import settings
from django.core.management import call_command

from engine.models import Experiment
from engine.selectors.experiments import has_had_a_pair, of_name
from labeling.demo import HUMAN_EXPERIMENT, writes_responses
from labeling.management.commands import serve
from labeling.management.commands.seed_demo import passwords


class Command(serve.Command):
    help = "Prepare and run the demo until Ctrl-C. Run again, it continues where it stopped."

    def prepare(self) -> None:
        call_command("seed_demo", stdout=self.stdout)

    def programs(self) -> list[str]:
        return list(serve.PROGRAMS) if writes_responses() else super().programs()

    def is_ready(self) -> bool:
        experiment = of_name(HUMAN_EXPERIMENT).get(maker=None)
        return experiment.state != Experiment.State.RUNNING or has_had_a_pair(experiment)

    def say_where_to_go(self, address: str) -> None:
        self.stdout.write(f"\n  Open http://{address}\n\n")
        for name, password in passwords().items():
            what = "compare pairs" if name == "annotator" else "make, run and watch experiments"
            known = (
                f"password {password}"
                if password
                else f"(llmpo --data {settings.VAR_DIR} manage changepassword {name} sets a new password)"
            )
            self.stdout.write(f"    {name:<10} {known}   to {what}\n")
        self.stdout.write(
            "\n  One experiment waits for your clicks; the other is judged by rule and moves by itself."
            "\n  When yours has its verdict, open its Result and press Improve: better prompts are proposed."
            "\n  Ctrl-C stops everything.\n"
        )
