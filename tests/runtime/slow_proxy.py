"""A stretch of network of known delay and rate: forwards TCP connections, each direction after its own time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

CHUNK_BYTES = 1 << 14


@dataclass(frozen=True)
class Line:
    """One direction."""

    delay_s: float
    bytes_per_s: float


@contextlib.contextmanager
def slow_proxy(target_port: int, there: Line, back: Line) -> Iterator[int]:
    """The port at which whoever listens at ``target_port`` is reached the slow way."""
    loop = asyncio.new_event_loop()
    started: list[asyncio.Server] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while (arrival := await chunks.get())[1]:
                await asyncio.sleep(arrival[0] - loop.time())
                writer.write(arrival[1])
            writer.close()

        delivering = asyncio.create_task(deliver())
        free_s = 0.0
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                free_s = max(free_s, loop.time()) + len(chunk) / line.bytes_per_s
                chunks.put_nowait((free_s + line.delay_s, chunk))
        chunks.put_nowait((0.0, b""))
        await delivering

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target_port)
        await asyncio.gather(carry(reader, far_writer, there), carry(far_reader, writer, back))

    async def start() -> int:
        started.append(await asyncio.start_server(accept, "127.0.0.1", 0))
        return int(started[0].sockets[0].getsockname()[1])

    async def stop() -> None:
        started[0].close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(5)
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
