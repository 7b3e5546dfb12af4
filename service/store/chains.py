"""The chain store: what is kept of a chain between calls, and who may move it.

One writer at a time: it holds a lease, and its token fences off whoever held it before. A commit
names the step that it goes on from; if the chain is elsewhere by now, nothing is written. What
the store cannot give is raised in a caller's words, and another owner's chain is an unknown one.
"""

import secrets
from dataclasses import dataclass
from typing import Any

from service.store import scripts
from service.store.client import Client
from service.store.run_to_completion import finished
from service.store.script_errors import check


@dataclass(frozen=True)
class Snapshot:
    """A chain's state at one step; the bytes are the caller's affair."""

    step: int
    state: bytes


@dataclass(frozen=True)
class Record:
    """A chain as it stands."""

    id: str
    owner: str
    plan: bytes
    head: Snapshot  # the newest committed state
    base: Snapshot  # from before the last call
    created: float  # unix seconds
    expires: float  # unix seconds
    busy_seconds: float  # left of a writer's lease; 0 where nobody writes


@dataclass(frozen=True)
class Lease:
    """The right to move a chain, until it runs out or somebody takes over."""

    chain: str
    token: str


class ChainStore:
    """Chains on a Redis; `owner` None sees every owner's."""

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
        lives = (chain_seconds, tombstone_seconds, lease_seconds)
        self._lives = [round(1000 * seconds) for seconds in lives]
        self._client = Client(url, timeout)

    async def create(
        self, chain: str, owner: str, plan: bytes, state: bytes, *, step: int = 0
    ) -> Lease | None:
        """A new chain, leased to the caller; None where one of that id is there already."""
        return await finished(self._create(chain, owner, plan, state, step), self._give_back)

    async def acquire(self, chain: str, owner: str | None) -> tuple[Record, Lease]:
        """The chain as it stands, and the right to move it."""
        work = self._acquire(chain, owner)
        return await finished(work, lambda got: self._give_back(got[1]))

    async def read(self, chain: str, owner: str | None) -> Record:
        """The chain as it stands; looking does not make it live longer."""
        answer = await self._run(scripts.READ, chain, _asked(owner), owner=owner)
        return _record(chain, answer)

    async def commit(
        self,
        lease: Lease,
        before: int,
        head: Snapshot,
        base: Snapshot | None = None,
        *,
        release: bool = False,
    ) -> None:
        """Move the chain from step `before` to `head`, wholly or not at all; renews the lease."""
        more = (base.step, base.state) if base else ()
        args = (lease.token, before, int(release), head.step, head.state, *more)
        await self._run(scripts.COMMIT, lease.chain, *args, before=before)

    async def renew(self, lease: Lease) -> None:
        """A lease of full length again; StaleChainError if somebody else has it by now."""
        await self._run(scripts.RENEW, lease.chain, lease.token)

    async def release(self, lease: Lease) -> None:
        """Let others move the chain; nothing happens if the lease is no longer ours."""
        await self._run(scripts.RELEASE, lease.chain, lease.token)

    async def delete(self, chain: str, owner: str | None) -> None:
        """End the chain, even under a writer: its next commit fails."""
        await self._run(scripts.DELETE, chain, _asked(owner), _nonce(), owner=owner)

    async def ping(self) -> None:
        """StoreError if the store cannot serve."""
        await self._client.ping()

    async def close(self) -> None:
        """Leave the server; what is under way fails."""
        await self._client.close()

    async def _create(
        self, chain: str, owner: str, plan: bytes, state: bytes, step: int
    ) -> Lease | None:
        answer = await self._send(scripts.CREATE, chain, _nonce(), owner, plan, step, state)
        return Lease(chain, answer[1].decode()) if answer[0] == b"ok" else None

    async def _acquire(self, chain: str, owner: str | None) -> tuple[Record, Lease]:
        answer = await self._send(scripts.ACQUIRE, chain, _asked(owner), _nonce())
        check(answer, chain, owner)
        return _record(chain, answer), Lease(chain, answer[1].decode())

    async def _give_back(self, lease: Lease | None) -> None:
        """Of a caller that was cancelled before it knew that it had the lease."""
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
        answer = await finished(self._send(script, chain, *args))
        check(answer, chain, owner, before)
        return answer

    async def _send(
        self, script: scripts.Script, chain: str, *args: bytes | str | int
    ) -> list[Any]:
        keys = [f"lm:chain:{{{chain}}}", f"lm:end:{{{chain}}}"]
        answer: list[Any] = await self._client.run(script, keys, [*self._lives, *args])
        return answer


def _nonce() -> str:
    """The same in every repetition of a call, so that a repetition is known as one."""
    return secrets.token_hex(8)


def _asked(owner: str | None) -> str:
    return "*" if owner is None else f"={owner}"


def _record(chain: str, answer: list[Any]) -> Record:
    _, _, left, owner, plan, step, state, base_step, base_state, created, expires = answer
    return Record(
        id=chain,
        owner=owner.decode(),
        plan=plan,
        head=Snapshot(int(step), state),
        base=Snapshot(int(base_step), base_state),
        created=int(created) / 1000,
        expires=int(expires) / 1000,
        busy_seconds=int(left) / 1000,
    )
