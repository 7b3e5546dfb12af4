"""Run models in batches: jobs, the batcher, the executor and the model repository."""
