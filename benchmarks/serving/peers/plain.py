# mypy: ignore-errors
"""FastAPI as in its tutorial: a pydantic model in, a pydantic model out, no batching."""

import numpy as np
from fastapi import FastAPI, Request, Response
from graph import NPY, Graph, read_npy, write_npy
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

app = FastAPI()
graph = Graph()


class Rows(BaseModel):
    x: list[list[float]]


class Answer(BaseModel):
    reconstruction: list[list[float]]


@app.post("/reconstruct")
def reconstruct(rows: Rows) -> Answer:
    return Answer(reconstruction=graph(np.asarray(rows.x, np.float32)).tolist())


@app.post("/npy")
async def npy(request: Request) -> Response:
    y = await run_in_threadpool(graph, read_npy(await request.body()))
    return Response(write_npy(y), media_type=NPY)
