# mypy: ignore-errors
"""An upper limit without a framework: raw bodies, orjson, micro-batches, one compute thread.

Requests that arrive while a batch is computed form the next batch; there is no batching timeout.
"""

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import orjson
from graph import MAX_BATCH, NPY, Graph, read_npy, write_npy

graph = Graph()
thread = ThreadPoolExecutor(1)
waiting = deque()
running = False


async def app(scope, receive, send):
    body = await read_body(receive)
    as_npy = (b"content-type", NPY.encode()) in scope["headers"]
    x = read_npy(body) if as_npy else np.asarray(orjson.loads(body)["x"], np.float32)
    y = await reconstruct(x)
    if as_npy:
        out, kind = write_npy(y), NPY.encode()
    else:
        out = orjson.dumps({"reconstruction": y}, option=orjson.OPT_SERIALIZE_NUMPY)
        kind = b"application/json"
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(out))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": out})


async def read_body(receive):
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def reconstruct(x):
    future = asyncio.get_running_loop().create_future()
    waiting.append((x, future))
    if not running:
        asyncio.get_running_loop().call_soon(start_batch)
    return future


def start_batch():
    global running
    if running or not waiting:
        return
    batch, rows = [], 0
    while waiting and (not batch or rows + len(waiting[0][0]) <= MAX_BATCH):
        batch.append(waiting.popleft())
        rows += len(batch[-1][0])
    running = True
    task = asyncio.get_running_loop().run_in_executor(
        thread, graph.run_blocks, [x for x, _ in batch]
    )
    task.add_done_callback(lambda done: finish_batch(batch, done))


def finish_batch(batch, done):
    global running
    running = False
    start_batch()
    for (_, future), y in zip(batch, done.result(), strict=True):
        if not future.done():
            future.set_result(y)
