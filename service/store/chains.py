"""The chain store: what is kept of a chain between calls, and who may write to it.

A chain has one writer at a time. The writer holds a lease, and the lease's token fences off earlier
holders: a commit with an old token fails. A commit also names the step that it continues from; if
the chain is at another step, nothing is written. Another owner's chain looks like an unknown one.
"""

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from localmoments.errors import (
    BusyChainError,
    ExpiredChainError,
    StaleChainError,
    UnknownChainError,
)
from service.store import scripts
from service.store.client import Client, run_to_completion


@dataclass(frozen=True)
class Snapshot:
    """A chain's state at one step. The store does not interpret the bytes."""

    step: int
    state: bytes


@dataclass(frozen=True)
class Record:
    """A chain as it is stored."""

    id: str
    owner: str
    plan: bytes
    head: Snapshot  # the newest committed state
    base: Snapshot  # the state from before the last call
    created: float  # unix seconds
    expires: float  # unix seconds
    busy_seconds: float  # time left of a writer's lease; 0 without a writer


@dataclass(frozen=True)
class Lease:
    """The right to write to a chain, until it expires or another call takes over."""

    chain: str
    token: str


class ChainStore:
    """Chains in Redis or Valkey.

    Methods raise StoreError if the store cannot be used, UnknownChainError and ExpiredChainError
    for chains that are not there. `owner` None may use every owner's chains.

    Args:
        url: redis://, rediss:// or unix://.
        chain_seconds: a chain expires this long after its last call.
        tombstone_seconds: how long an expired or deleted chain raises ExpiredChainError before it
            raises UnknownChainError.
        lease_seconds: a lease expires this long after it was acquired or renewed.
        timeout: seconds that one operation may take, with all retries.
    """

    def __init__(
        self,
        url: str,
        *,
        chain_seconds: float,
        tombstone_seconds: float,
        lease_seconds: float,
        timeout: float,
    ) -> None:
        self.lease_seconds = lease_seconds
        self.commits = self.conflicts = 0  # totals, for the metrics
        lifetimes = (chain_seconds, tombstone_seconds, lease_seconds)
        self._lifetimes_ms = [round(1000 * seconds) for seconds in lifetimes]
        self._client = Client(url, timeout)

    async def create(
        self, chain: str, owner: str, plan: bytes, state: bytes, *, step: int = 0
    ) -> Lease | None:
        """Store a new chain and lease it to the caller; None if the id is taken."""
        creating = self._create(chain, owner, plan, state, step)
        return await run_to_completion(creating, undo=self._release_unclaimed)

    async def acquire(self, chain: str, owner: str | None) -> tuple[Record, Lease]:
        """Lease a chain.

        Raises:
            BusyChainError: another call holds the lease.
        """
        acquiring = self._acquire(chain, owner)
        try:
            return await run_to_completion(
                acquiring, undo=lambda acquired: self._release_unclaimed(acquired[1])
            )
        except BusyChainError:
            self.conflicts += 1
            raise

    async def read(self, chain: str, owner: str | None) -> Record:
        """Read a chain. Reading does not extend its life."""
        reply = await self._run(scripts.READ, chain, _match_owner(owner), owner=owner)
        return _parse_record(chain, reply)

    async def commit(
        self,
        lease: Lease,
        before: int,
        head: Snapshot,
        base: Snapshot | None = None,
        *,
        release: bool = False,
    ) -> None:
        """Move the chain from step `before` to `head`, atomically, and renew the lease.

        Args:
            base: replaces the stored base, if given.
            release: release the lease instead of renewing it.

        Raises:
            StaleChainError: another call took the lease over, or the chain is at another step.
        """
        base_args = (base.step, base.state) if base else ()
        args = (lease.token, before, int(release), head.step, head.state, *base_args)
        try:
            await self._run(scripts.COMMIT, lease.chain, *args, before=before)
        except StaleChainError:
            self.conflicts += 1
            raise
        self.commits += 1

    async def renew(self, lease: Lease) -> None:
        """Extend the lease to its full length; StaleChainError if another call took it over."""
        await self._run(scripts.RENEW, lease.chain, lease.token)

    async def release(self, lease: Lease) -> None:
        """Let other calls write to the chain. Does nothing if another call took the lease over."""
        await self._run(scripts.RELEASE, lease.chain, lease.token)

    async def delete(self, chain: str, owner: str | None) -> None:
        """Delete a chain, even under a writer, whose next commit fails."""
        await self._run(scripts.DELETE, chain, _match_owner(owner), _make_nonce(), owner=owner)

    async def ping(self) -> None:
        """Raise StoreError if the store cannot be used."""
        await self._client.ping()

    async def close(self) -> None:
        """Close all connections; operations under way fail."""
        await self._client.close()

    async def _create(
        self, chain: str, owner: str, plan: bytes, state: bytes, step: int
    ) -> Lease | None:
        reply = await self._send(scripts.CREATE, chain, _make_nonce(), owner, plan, step, state)
        return Lease(chain, reply[1].decode()) if reply[0] == b"ok" else None

    async def _acquire(self, chain: str, owner: str | None) -> tuple[Record, Lease]:
        reply = await self._send(scripts.ACQUIRE, chain, _match_owner(owner), _make_nonce())
        _check_reply(reply, chain, owner)
        return _parse_record(chain, reply), Lease(chain, reply[1].decode())

    async def _release_unclaimed(self, lease: Lease | None) -> None:
        """Release a lease whose caller was cancelled before it received it."""
        if lease:
            await self._send(scripts.RELEASE, lease.chain, lease.token)

    async def _run(
        self,
        script: scripts.Script,
        chain: str,
        *args: bytes | str | int,
        owner: str | None = None,
        before: int | None = None,
    ) -> list[Any]:
        reply = await run_to_completion(self._send(script, chain, *args))
        _check_reply(reply, chain, owner, before)
        return reply

    async def _send(
        self, script: scripts.Script, chain: str, *args: bytes | str | int
    ) -> list[Any]:
        keys = [f"lm:chain:{{{chain}}}", f"lm:end:{{{chain}}}"]
        reply: list[Any] = await self._client.run(script, keys, [*self._lifetimes_ms, *args])
        return reply


def _make_nonce() -> str:
    """Identify an operation, so that the script recognises it when the client sends it again."""
    return secrets.token_hex(8)


def _match_owner(owner: str | None) -> str:
    """Encode whose chains may be used: "*" for all, or "=name"."""
    return "*" if owner is None else f"={owner}"


def _parse_record(chain: str, reply: list[Any]) -> Record:
    _, _, lease_left, owner, plan, step, state, base_step, base_state, created, expires = reply
    return Record(
        id=chain,
        owner=owner.decode(),
        plan=plan,
        head=Snapshot(int(step), state),
        base=Snapshot(int(base_step), base_state),
        created=int(created) / 1000,
        expires=int(expires) / 1000,
        busy_seconds=int(lease_left) / 1000,
    )


def _check_reply(
    reply: list[Any], chain: str, owner: str | None, before: int | None = None
) -> None:
    """Raise the error that a script replied with, if any."""
    kind, details = reply[0], reply[1:]
    if kind == b"busy":
        seconds = int(details[0]) / 1000
        raise BusyChainError(
            f"Another call is using chain {chain!r}. Try again in {seconds:.1f} s.",
            retry_after=seconds,
        )
    if kind == b"stale":
        step, is_lost = int(details[0]), details[1] == b"lost"
        raise StaleChainError(
            f"Another call has taken over chain {chain!r}, which is at step {step}."
            if is_lost
            else f"Chain {chain!r} is at step {step}, not at step {before}.",
            step=step,
        )
    if kind == b"gone":
        tombstone = json.loads(details[0]) if details and details[0] else None
        if tombstone and owner in (None, tombstone["owner"]):
            raise _make_expired_error(chain, tombstone)
    if kind in (b"gone", b"unknown"):
        raise UnknownChainError(f"There is no chain {chain!r}.")


def _make_expired_error(chain: str, tombstone: dict[str, Any]) -> ExpiredChainError:
    time = datetime.fromtimestamp(tombstone["expires"] / 1000, UTC).isoformat(timespec="seconds")
    # `ended_by` is the nonce of a DELETE; it is empty if the chain expired.
    verb = "was deleted" if tombstone["ended_by"] else "expired"
    return ExpiredChainError(f"Chain {chain!r} {verb} at {time}.", expired=time)
