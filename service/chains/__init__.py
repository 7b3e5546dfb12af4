"""Use cases on chains. A chain outlives the call that creates it; its state is kept in a store.

- Deterministic: noise is a function of (seed, step), so the state at a step and the plan determine
  all later samples.
- Durable: a sample is delivered only after a state at its step or later was committed.
- Exactly once: the store keeps the snapshot from before the last call. A caller can return to any
  step since then with `from_step` and gets the same samples again; they are recomputed, not stored.
- One writer: a call holds a lease with a fencing token.
- Pinned to a model version and to the exact files of that version.

`spec` says what a caller asks for, `planning` turns that into a stored plan, `call` runs one call
on a chain, and `service` is what the routes use.
"""
