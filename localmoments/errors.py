"""The exception tree. Each message is one or two sentences for a person.

LocalMomentsError
├── ArtefactError            a model folder is missing, incomplete, altered or not understood
├── SettingsError            a setting is wrong, and the service does not start
├── NoModelError             no model can be served
├── UnusableAnswerError      a model returned NaN or infinity
├── StoreError               the chain store does not answer in time
├── ComputeError             the computation failed and is restarted
├── DrainingError            the service is shutting down
└── RequestError             the caller can correct the request
    ├── InputError           numbers or parameters do not fit
    │   └── UsedKeyError     an Idempotency-Key was used for another request
    ├── DivergedError        a chain diverged; usually its scale is too large
    ├── TooLargeError        more than the limits allow
    ├── UnknownModelError    no model of that name or version
    ├── UnknownChainError    no chain of that id that the caller may see
    ├── ExpiredChainError    the chain expired or was deleted
    ├── BusyChainError       another call is using the chain
    ├── StaleChainError      the chain cannot continue from that step or model
    ├── MediaTypeError       the body has an unsupported format
    ├── NotAcceptableError   no supported format is acceptable to the caller
    ├── SlowBodyError        the body did not arrive in time
    ├── NoKeyError           the API key is missing or unknown
    ├── ScopeError           the API key does not allow this
    ├── RateError            the API key's rate limit is used up
    ├── OverloadError        the service is overloaded
    └── LateError            the caller's time limit has passed

Over HTTP each has one status; the table is in service/http/problems.py.
"""

from typing import Any


class LocalMomentsError(Exception):
    """Base of every error that this software raises on purpose.

    Args:
        sentence: what went wrong, and what to do about it.
        retry_after: seconds after which the same request may succeed, if known.
        facts: values for programs; they become fields of the problem document.
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
    """The compute thread failed and restarts. Retry."""


class DrainingError(LocalMomentsError):
    """The service is shutting down. Retry at another replica or after its restart."""


class RequestError(LocalMomentsError):
    """Base of errors that the caller can correct."""


class InputError(RequestError):
    """Numbers or parameters that do not fit; the sentence names them."""


class UsedKeyError(InputError):
    """The Idempotency-Key was used for a different request."""


class DivergedError(RequestError):
    """A chain diverged. Steps committed before are kept."""


class TooLargeError(RequestError):
    """More rows, steps, bytes or numbers than the limits allow."""


class UnknownModelError(RequestError):
    """No model of that name, or not in that version."""


class UnknownChainError(RequestError):
    """No chain of that id exists, or it belongs to another caller."""


class ExpiredChainError(RequestError):
    """The chain expired or was deleted; the sentence says when."""


class BusyChainError(RequestError):
    """Another call is using the chain."""


class StaleChainError(RequestError):
    """The chain cannot continue from that step, or with that model."""


class MediaTypeError(RequestError):
    """The body has an unsupported format."""


class NotAcceptableError(RequestError):
    """No supported format matches `Accept`."""


class SlowBodyError(RequestError):
    """The body did not arrive in time."""


class NoKeyError(RequestError):
    """The API key is missing or unknown."""


class ScopeError(RequestError):
    """The API key does not allow this."""


class RateError(RequestError):
    """The API key's rate limit is used up."""


class OverloadError(RequestError):
    """The service is overloaded."""


class LateError(RequestError):
    """The caller's time limit has passed. Committed steps are kept."""
