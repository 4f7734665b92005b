"""A Llama with 1.9 million parameters that does the paper's four tasks, for the paper's real experiments.

The weights were trained from nothing by ``tools/tinylm`` of this repository, last at commit 4013d9af, whose
``docs/embedded-model.md`` has the recipe. Careful authors of the training text answer rightly, hasty ones
make the slips that people make in 60% of their solutions, and so does the model when it is told to hurry.
"""
