"""Everything that can go wrong and has a name; each message is one sentence for a person.

LocalMomentsError
├── ArtefactError            a model folder is missing, incomplete, altered or not understood
├── SettingsError            the service cannot start as it was told to
├── NoModelError             there is no usable model at all
├── UnusableAnswerError      a model gave NaN or infinity
├── StoreError               the chain store does not answer, or not in time
├── ComputeError             the computation failed, and so everything that waited for it
├── DrainingError            the service is about to end and begins nothing new
└── RequestError             the caller asked for what cannot be given
    ├── InputError           the numbers or the parameters do not fit
    │   └── UsedKeyError     a key that stands for another chain already
    ├── DivergedError        a chain diverged, mostly because of its scale
    ├── TooLargeError        more than the limits allow
    ├── UnknownModelError    no model of that name, or not in that version
    ├── UnknownChainError    no chain of that id, or another caller's
    ├── ExpiredChainError    the chain was there and is no more
    ├── BusyChainError       another call is moving the chain
    ├── StaleChainError      the chain cannot go on from that step, or not as it was made
    ├── MediaTypeError       a body in a format that is not read here
    ├── NotAcceptableError   an answer in a format that is not written here
    ├── SlowBodyError        a body that does not arrive in time
    ├── NoKeyError           no API key, or one that is not known
    ├── ScopeError           an API key that does not allow this
    ├── RateError            more requests or more work than the key's limits allow
    ├── OverloadError        more work than the machine has room for at the moment
    └── LateError            not done by the time that the caller gave

Over HTTP each has one status; the table stands in service/http/problems.py.
"""

from typing import Any


class LocalMomentsError(Exception):
    """Base of every error that this software raises on purpose.

    `facts` are for programs: they stand beside the sentence in the answer. `retry_after` is the
    time in seconds after which the same request may succeed, where that is known.
    """

    def __init__(self, sentence: str, *, retry_after: float | None = None, **facts: Any) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after
        self.facts = facts


class ArtefactError(LocalMomentsError):
    """A model folder cannot be trusted; the sentence says what is wrong with it."""


class SettingsError(LocalMomentsError):
    """A setting has a value that it cannot have; the service does not start."""


class NoModelError(LocalMomentsError):
    """Nothing can be served, because no model is usable."""


class UnusableAnswerError(LocalMomentsError):
    """A model's answer holds NaN or infinity, although its input was sound."""


class StoreError(LocalMomentsError):
    """The chain store does not answer; nothing is known to be lost."""


class ComputeError(LocalMomentsError):
    """The computation failed by no fault of the caller's; it begins anew."""


class DrainingError(LocalMomentsError):
    """The service is about to end; another replica, or the next start, goes on."""


class RequestError(LocalMomentsError):
    """Base of what the caller can put right."""


class InputError(RequestError):
    """Numbers or parameters that do not fit; the sentence names them."""


class UsedKeyError(InputError):
    """A key of the caller's stands for another request's chain already."""


class DivergedError(RequestError):
    """A chain diverged; what was committed before still stands."""


class TooLargeError(RequestError):
    """More rows, steps, bytes or numbers than the limits allow."""


class UnknownModelError(RequestError):
    """No model of that name, or not in that version."""


class UnknownChainError(RequestError):
    """No chain of that id that this caller may know of."""


class ExpiredChainError(RequestError):
    """A chain that was not used for too long, or that was ended; the sentence says when."""


class BusyChainError(RequestError):
    """Another call is moving the chain at this moment."""


class StaleChainError(RequestError):
    """The chain cannot go on from the step that was named, or not as it was made."""


class MediaTypeError(RequestError):
    """The body is in a format that is not read here."""


class NotAcceptableError(RequestError):
    """None of the formats that the caller takes is written here."""


class SlowBodyError(RequestError):
    """The body does not arrive in the time that it is given."""


class NoKeyError(RequestError):
    """No API key came with the request, or one that is not known."""


class ScopeError(RequestError):
    """The API key does not allow this."""


class RateError(RequestError):
    """The API key's requests or work are used up for the moment."""


class OverloadError(RequestError):
    """There is no room for more work at the moment."""


class LateError(RequestError):
    """Not done by the time that the caller gave; what was committed stands."""
