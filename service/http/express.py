"""The shortest way from a connection to the batcher and back, without a task of its own.

Most requests for rows are alike: a small JSON body that is there at once, with rows and nothing
else, for the default model. They are taken here. Whatever is otherwise (another format, parameters,
a proxy before it), and whatever goes wrong on the way, takes the usual one as if it had never been
here, so that there is one place for errors.
"""

import asyncio
from functools import partial
from time import monotonic, perf_counter

from localmoments.arrays import Named
from localmoments.errors import LocalMomentsError
from service.engine.reconstruction_job import ReconstructionJob
from service.http.dependencies import LARGE, of_json
from service.http.encodings import JSON, write_json
from service.http.exchange import request_id
from service.http.http_protocol import Parcel
from service.http.middleware import GONE, Edge, Hurry
from service.inference import Inference
from service.routes import reconstruct

PATH, QUICK = "/reconstruct", Hurry("/reconstruct", reconstruct.at_once)
PLAIN = {
    b"content-type": (JSON.encode(),),
    b"accept": (b"*/*", JSON.encode()),
    b"content-encoding": (),
    b"x-forwarded-for": (),
    b"x-forwarded-proto": (),
}


class Express:
    """Only where no keys are asked for, and nothing is around the edge."""

    def __init__(self, sampling: Inference, edge: Edge, most_bytes: int) -> None:
        self._sampling, self._edge, self._most = sampling, edge, min(most_bytes, LARGE)

    def __call__(self, parcel: Parcel) -> ReconstructionJob | None:
        """The work that was begun; None for what goes the usual way."""
        if not self._is_plain(parcel) or self._edge.gate.is_full:
            return None
        try:
            x, said = of_json(parcel.body, reconstruct.NOTHING)
            if said is not reconstruct.NOTHING:
                return None
            work = self._sampling.begin_reconstruction(x)
        except LocalMomentsError:
            return None
        began = perf_counter()
        self._edge.gate.enter(parcel.since)
        work.result.add_done_callback(partial(self._done, parcel, work, began))
        return work

    def _is_plain(self, parcel: Parcel) -> bool:
        scope = parcel.scope
        return (
            scope["path"] == PATH
            and scope["method"] == "POST"
            and not scope["query_string"]
            and len(parcel.body) <= self._most
            and all(value in PLAIN.get(name, (value,)) for name, value in scope["headers"])
        )

    def _done(
        self, parcel: Parcel, work: ReconstructionJob, began: float, found: asyncio.Future[Named]
    ) -> None:
        now, scope = perf_counter(), parcel.scope
        self._edge.gate.leave(parcel.since, monotonic())
        name = request_id(scope["headers"])
        if found.cancelled():  # the caller has left
            status = GONE
        elif found.exception() is None and _answered(parcel, work, found.result(), name):
            status = 200
        else:
            parcel.otherwise()
            return
        scope["route"], scope["state"]["request_id"] = QUICK, name
        self._edge.note(scope, status, now - began)


def _answered(parcel: Parcel, work: ReconstructionJob, found: Named, name: str) -> bool:
    model = work.model.manifest.reference
    try:
        body = write_json({"model": model, "sigma": work.sigma, **found})
    except LocalMomentsError:
        return False
    headers = [
        (b"vary", b"accept"),
        (b"x-model", model.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"content-type", JSON.encode()),
        (b"x-request-id", name.encode()),
    ]
    return parcel.answer(200, headers, body)
