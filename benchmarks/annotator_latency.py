"""The time an annotator waits, on the server and until the next pair is painted; and the weight of the page.

    python -m benchmarks.annotator_latency
    DATABASE_URL=postgres://… python -m benchmarks.annotator_latency

* server: one POST of an answer, through the whole stack in this process, until its reply with the next pair;
* painted: from a key press to the frame after the next pair is in the page (Chromium, a server on this
  machine);
* weight: bytes that come over the wire, headers too, for the first load and then for each pair.

Runs on a test database of its own, made and dropped. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.installation import percentiles, scratch_database

RESPONSE = """The answer is **{n}**.

1. There are two groups, of $a$ and of $b$ things.
2. Together they make $a + b = \\frac{{2a + 2b}}{{2}}$.

```python
def total(groups: list[int]) -> int:
    return sum(groups)  # {n}
```

So we count what is in each of them, add the counts up, and check that nothing was counted twice. That a group
is empty changes nothing, and neither does the order in which they come. {padding}
"""


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=int, default=300, help="judgments that are there already")
    parser.add_argument("--clicks", type=int, default=300, help="timed on the server")
    parser.add_argument("--presses", type=int, default=100, help="timed in the browser; 0 for none")
    options = parser.parse_args(arguments)
    # Playwright's loop runs in the thread that also asks the database.
    with scratch_database(DJANGO_ALLOW_ASYNC_UNSAFE="1"):
        from django.db import connection

        vendor = connection.vendor
        summary: dict[str, Any] = {"database": vendor}
        experiment, user = world(options.before + options.clicks + options.presses + 20)
        client, milliseconds = answer_on_the_server(experiment, user, options.before, options.clicks)
        summary["server_ms"] = percentiles(milliseconds)
        print_row(f"{vendor}: judge and next, server", summary["server_ms"])
        if options.presses:
            summary |= answer_in_the_browser(experiment, client, options.presses)
            print_row(f"{vendor}: key press to painted", summary["painted_ms"])
            print(f"first load {summary['first_load_kb']:6.1f} kB    each pair {summary['pair_kb']:6.1f} kB")
    json.dump(summary, sys.stdout)
    print()


def world(n_pairs: int) -> tuple[Any, Any]:
    """An experiment of eight policies with that many pairs ready, and its annotator."""
    from django.conf import settings

    from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
    from engine.generation.worker import write_batch
    from engine.models import Membership, User
    from engine.services.drafts import create_experiment
    from engine.services.experiments import start
    from engine.services.planning import advance

    settings.BUFFER_MIN = settings.BUFFER_MAX = n_pairs
    user = User.objects.create_user("annotator")
    experiment = create_experiment(
        spec=ExperimentSpec(
            name="Benchmark",
            factors=[FactorSpec("Prompt", "prompt", {f"Prompt {k}": {"text": f"Be {k}."} for k in range(8)})],
            tasks=[TaskSpec(f"I have {n} apples and a pear. How many fruits do I have?") for n in range(200)],
            settings={"allow_tie": True, "budget": 1_000_000, "delta": 1e-9},
        )
    )
    Membership.objects.create(experiment=experiment, user=user)
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    while write_batch(worker="benchmark", backend=Fluent())[0]:
        advance(experiment_id=experiment.pk)
    return experiment, user


class Fluent:
    """Writes a response of usual length, with code and maths in it, without waiting."""

    name = "fluent"
    model = "fluent-1"

    def generate(self, requests: Sequence[Any]) -> Iterator[Any]:
        from engine.generation.base import Finish, GenerationResult

        for request in requests:
            n = request.seed % 1000
            yield GenerationResult(
                key=request.key,
                text=RESPONSE.format(n=n, padding="And so on. " * (n % 40)),
                prompt_tokens=20,
                completion_tokens=200,
                finish_reason=Finish.STOP,
                latency_seconds=0.0,
            )


def answer_on_the_server(experiment: Any, user: Any, before: int, clicks: int) -> tuple[Any, list[float]]:
    """The client that is logged in, and milliseconds of each timed click:
    two pairs held, as the page does.
    """
    from django.test import Client
    from django.urls import reverse

    client = Client(headers={"HX-Request": "true", "host": "localhost"})
    client.force_login(user)
    pair, judge = (reverse(name, args=[experiment.pk]) for name in ("pair", "judge"))
    shown = _token(client.get(pair))
    ahead = _token(client.get(pair, {"after": shown}))
    milliseconds = []
    for number in range(before + clicks):
        form = {"token": shown, "choice": "left" if number % 2 else "right", "after": ahead}
        start = time.perf_counter()
        reply = client.post(judge, form)
        milliseconds.append((time.perf_counter() - start) * 1000)
        shown, ahead = ahead, _token(reply)
    client.post(reverse("leave", args=[experiment.pk]))
    return client, milliseconds[before:]


def _token(reply: Any) -> str:
    assert reply.status_code == 200, reply.content[:500]
    return str(reply.content.decode().split('data-token="')[1].split('"')[0])


def answer_in_the_browser(experiment: Any, client: Any, presses: int) -> dict[str, Any]:
    """Milliseconds from key to paint, and kilobytes over the wire."""
    from django.conf import settings
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with server() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(base_url=address)
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": address}])
        page = context.new_page()
        received: list[float] = []
        network = context.new_cdp_session(page)
        network.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
        network.send("Network.enable")
        page.goto(f"/label/{experiment.pk}/")
        page.wait_for_selector("#choose-left")
        # The next pair is fetched ahead, which is not part of the first load.
        first_load = sum(received)
        page.wait_for_timeout(1000)
        page.evaluate(WATCH)
        received.clear()
        for number in range(presses):
            page.wait_for_timeout(
                450
            )  # somebody reads; meanwhile the answer is saved and a pair fetched ahead
            page.keyboard.press("1" if number % 2 else "2")
            page.wait_for_function("(n) => window.painted.length > n", arg=number)
        page.wait_for_timeout(1000)
        painted = page.evaluate("window.painted")
        browser.close()
    return {
        "painted_ms": percentiles(painted),
        "first_load_kb": round(first_load / 1000, 1),
        "pair_kb": round(sum(received) / presses / 1000, 1),
    }


# Two frames after the change, the first of the two is on the screen.
WATCH = """() => {
    window.painted = [];
    let pressed = 0;
    document.addEventListener("keydown", () => { pressed = performance.now(); }, true);
    new MutationObserver((changes) => {
        if (!changes.some((change) => [...change.addedNodes].some((node) => node.id === "stage"))) return;
        requestAnimationFrame(() => requestAnimationFrame(
            () => window.painted.push(performance.now() - pressed)));
    }).observe(document.getElementById("main"), { childList: true, subtree: true });
}"""


@contextmanager
def server() -> Iterator[str]:
    """The site on a free port of this machine."""
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
    from django.core.wsgi import get_wsgi_application

    class Quiet(WSGIRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    serving = ThreadedWSGIServer(("127.0.0.1", 0), Quiet)
    serving.set_app(get_wsgi_application())
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}"
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()


def print_row(name: str, row: dict[str, float]) -> None:
    """One line of the table."""
    print(f"{name:38s} " + "   ".join(f"{q} {value:6.1f} ms" for q, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
