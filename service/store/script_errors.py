"""What the scripts answer when it did not go well, as errors in a caller's words.

Of another owner's chain the same is said as of one that never was.
"""

import json
from datetime import UTC, datetime
from typing import Any, NoReturn

from localmoments.errors import (
    BusyChainError,
    ExpiredChainError,
    StaleChainError,
    UnknownChainError,
)


def check(answer: list[Any], chain: str, owner: str | None, before: int | None = None) -> None:
    """Every answer but "ok" as the error that it is."""
    kind, rest = answer[0].decode(), answer[1:]
    if kind == "busy":
        _busy(chain, int(rest[0]) / 1000)
    if kind == "stale":
        _stale(chain, int(rest[0]), before, lost=rest[1] == b"lost")
    if kind == "gone":
        _gone(chain, owner, rest[0] if rest else None)
    if kind == "unknown":
        _unknown(chain)


def _busy(chain: str, left: float) -> NoReturn:
    raise BusyChainError(
        f"Another call is moving the chain {chain!r}; try again in {left:.1f} s.",
        retry_after=left,
    )


def _stale(chain: str, step: int, before: int | None, *, lost: bool) -> NoReturn:
    if lost:
        sentence = f"Another call has taken over the chain {chain!r}; it is at step {step}."
    else:
        sentence = f"The chain {chain!r} is at step {step} and not at step {before}."
    raise StaleChainError(sentence, step=step)


def _unknown(chain: str) -> NoReturn:
    raise UnknownChainError(f"There is no chain {chain!r}.")


def _gone(chain: str, owner: str | None, text: bytes | None) -> NoReturn:
    note = json.loads(text) if text else None
    if note is None or owner not in (None, note["owner"]):
        _unknown(chain)
    when = datetime.fromtimestamp(note["expires"] / 1000, UTC).isoformat(timespec="seconds")
    how = "was ended by DELETE" if note["ended_by"] else "was not used any more and expired"
    raise ExpiredChainError(f"The chain {chain!r} {how} at {when}.", expired=when)
