"""Everything that can go wrong and has a name; each message is one sentence for a person.

LocalMomentsError
├── ArtefactError            a model folder is missing, incomplete, altered or not understood
├── SettingsError            the service cannot start as it was told to
├── NoModelError             there is no usable model at all
├── UnusableAnswerError      a model gave NaN or infinity
└── RequestError             the caller asked for what cannot be given
    ├── InputError           the numbers or the parameters do not fit
    ├── TooLargeError        more than the limits allow
    ├── UnknownModelError    no model of that name, or not in that version
    ├── MediaTypeError       a body in a format that is not read here
    └── NotAcceptableError   an answer in a format that is not written here

Over HTTP each has one status; the table stands in service/api/problems.py.
"""


class LocalMomentsError(Exception):
    """Base of every error that this software raises on purpose."""


class ArtefactError(LocalMomentsError):
    """A model folder cannot be trusted; the sentence says what is wrong with it."""


class SettingsError(LocalMomentsError):
    """A setting has a value that it cannot have; the service does not start."""


class NoModelError(LocalMomentsError):
    """Nothing can be served, because no model is usable."""


class UnusableAnswerError(LocalMomentsError):
    """A model's answer holds NaN or infinity, although its input was sound."""


class RequestError(LocalMomentsError):
    """Base of what the caller can put right."""


class InputError(RequestError):
    """Numbers or parameters that do not fit; the sentence names them."""


class TooLargeError(RequestError):
    """More rows, bytes or numbers than the limits allow."""


class UnknownModelError(RequestError):
    """No model of that name, or not in that version."""


class MediaTypeError(RequestError):
    """The body is in a format that is not read here."""


class NotAcceptableError(RequestError):
    """None of the formats that the caller takes is written here."""
