"""Everything that can go wrong and has a name; each message is one sentence for a person.

LocalMomentsError
└── ArtefactError        a model folder is missing, incomplete, altered or not understood
"""


class LocalMomentsError(Exception):
    """Base of every error that this software raises on purpose."""


class ArtefactError(LocalMomentsError):
    """A model folder cannot be trusted; the sentence says what is wrong with it."""
