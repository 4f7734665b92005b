"""The load's visitors keep to HTTP as browsers do."""

from __future__ import annotations

import asyncio

from benchmarks.serving_load import Load, Visitor


def test_a_cookie_that_is_set_again_takes_the_place_of_the_earlier_one():
    """A server refuses a request whose headers grow with each reply."""

    async def sent_cookies() -> list[str]:
        received = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for value in ("one", "two", "three"):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                received.extend(line for line in head.splitlines() if line.startswith("Cookie: "))
                cookie = f"Set-Cookie: csrftoken={value}; Path=/"
                writer.write(f"HTTP/1.1 200 OK\r\n{cookie}\r\nContent-Length: 0\r\n\r\n".encode())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            visitor = Visitor(server.sockets[0].getsockname()[1], "sessionid=s", Load())
            for _ in range(3):
                await visitor.get("/")
            visitor.close()
        return received

    assert asyncio.run(sent_cookies()) == [
        "Cookie: sessionid=s",
        "Cookie: sessionid=s; csrftoken=one",
        "Cookie: sessionid=s; csrftoken=two",
    ]
