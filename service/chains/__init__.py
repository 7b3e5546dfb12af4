"""Chains that outlive a call: opened, walked on, forked and ended, with their state in a store.

- Deterministic: noise is a function of (seed, step), so the state is (x or h, step) and a plan.
- Durable: a sample is handed out only after a state at or beyond its step was committed.
- Exactly once: the snapshot from before the last call is kept, so any step since can be returned
  to (`from_step`), and the samples that follow are the same again: recomputed, not stored.
- One writer: a call holds a lease with a fencing token.
- Pinned to a model version, and to the very files of it.
"""
