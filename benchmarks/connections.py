"""Throughput of the requests to connections.

    python -m benchmarks.connections client [--requests 2000] [--at-once 64] [--rounds 5]
    python -m benchmarks.connections worker [--responses 2000]

Part ``client``: our client beside OpenAI's bare one, in turns, with so many requests under way at once. The
server is a process of its own on the loopback, which answers every request with the same small completion.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import Any

from benchmarks.connection_worker import measure
from benchmarks.installation import ONE_THREAD, installation

KEY = "sk-loopback-0123456789abcdef"
COMPLETION = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "A short answer of a few words. " * 40},
            }
        ],
        "usage": {"prompt_tokens": 300, "completion_tokens": 280, "total_tokens": 580},
    }
).encode()
PROMPT = "I have a pig, two ducks, and a dog. How many animals do I have? " * 20


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    reply = b"%s%d\r\n\r\n%s" % (head, len(COMPLETION), COMPLETION)
    try:
        while True:
            headers = await reader.readuntil(b"\r\n\r\n")
            length = headers.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            writer.write(reply)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _serve(listener: socket.socket) -> None:
    async def run() -> None:
        server = await asyncio.start_server(_answer, sock=listener)
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def loopback_server() -> Any:
    """The address of a server that answers at once."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        process.terminate()
        process.join()


async def per_second(ask: Callable[[int], Awaitable[None]], requests: int, at_once: int) -> float:
    """Requests a second, so many under way at once."""
    numbers = iter(range(requests))

    async def go_on() -> None:
        for number in numbers:
            await ask(number)

    started = time.perf_counter()
    await asyncio.gather(*(go_on() for _ in range(at_once)))
    return requests / (time.perf_counter() - started)


async def client(requests: int, at_once: int, rounds: int) -> list[tuple[float, float]]:
    """Requests a second of our client and of the bare one, in each round."""
    import openai  # noqa: PLC0415 - for development only

    from engine.domain.conversations import chat  # noqa: PLC0415
    from engine.domain.levels import SamplingParams  # noqa: PLC0415 - needs Django
    from engine.domain.profiles import Provider, takes_of  # noqa: PLC0415
    from engine.domain.targets import Target  # noqa: PLC0415
    from engine.generation.base import GenerationRequest, GenerationResult  # noqa: PLC0415
    from engine.generation.remote.client import Client  # noqa: PLC0415

    sampling = SamplingParams(temperature=0.7, max_tokens=300)
    messages = chat(PROMPT, "Be brief.")
    found = []
    with loopback_server() as url:
        takes = takes_of(Provider.COMPATIBLE, "m")
        target = Target(1, "m", Provider.COMPATIBLE, "m", url, takes, KEY)
        async with (
            Client() as ours,
            openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=600) as bare,
        ):

            async def ask_ours(number: int) -> None:
                outcome = await ours.ask(target, GenerationRequest(number, messages, sampling, number))
                if not isinstance(outcome, GenerationResult):
                    raise TypeError(outcome.reason)

            async def ask_bare(_: int) -> None:
                reply = await bare.chat.completions.create(
                    model="m",
                    messages=[{"role": each.role, "content": each.content} for each in messages],  # type: ignore[misc]
                    temperature=0.7,
                    max_tokens=300,
                )
                if not reply.choices[0].message.content:
                    raise TypeError("no content")

            for ask in (ask_ours, ask_bare):
                await per_second(ask, 4 * at_once, at_once)
            for _ in range(rounds):
                found.append(
                    (
                        await per_second(ask_ours, requests, at_once),
                        await per_second(ask_bare, requests, at_once),
                    )
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["client", "worker"])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--responses", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.part == "worker":
        with installation(
            GENERATION_BACKEND="remote", ALLOW_PRIVATE_CONNECTIONS="true", CLAIM_SECONDS="10", **ONE_THREAD
        ) as folder:
            found = measure(folder, arguments.responses)
        print(json.dumps({"benchmark": "connections", "part": "worker"} | found))
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
    os.environ.setdefault("SECRET_KEY", "only-for-this-benchmark-only-for-this-benchmark")
    os.environ["ALLOW_PRIVATE_CONNECTIONS"] = "true"
    import django  # noqa: PLC0415

    django.setup()
    rounds = asyncio.run(client(arguments.requests, arguments.at_once, arguments.rounds))
    for ours, bare in rounds:
        print(f"ours {ours:8.0f}/s   bare {bare:8.0f}/s   ratio {ours / bare:.2f}", flush=True)
    ratio = statistics.median(ours / bare for ours, bare in rounds)
    print(json.dumps({"benchmark": "connections", "part": "client", "ratio": round(ratio, 2)}))


if __name__ == "__main__":
    main()
